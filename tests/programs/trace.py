import sys

events = []


def tracer(frame, event, arg):
    events.append((frame.f_code.co_name, event, frame.f_lineno))
    return tracer


def traced():
    for i in range(2):
        yield i


sys.settrace(tracer)
list(traced())
sys.settrace(None)
print(events)
