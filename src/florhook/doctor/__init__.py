"""`florhook doctor`: what recording would do with a program, and whether it works here."""
