def f():
    pass
  print("never")
