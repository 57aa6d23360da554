"""IPython and Jupyter: `%load_ext florhook`, `%%record` on a cell, `%%replay` on the edited cell."""
