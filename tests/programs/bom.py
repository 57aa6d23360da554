print("bom", __doc__)
