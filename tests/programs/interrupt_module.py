import interrupt
