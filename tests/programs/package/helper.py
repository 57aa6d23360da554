value = 5
