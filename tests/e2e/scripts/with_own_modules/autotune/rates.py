import trials


def first_rate():
    return trials.LEARNING_RATES[0]
