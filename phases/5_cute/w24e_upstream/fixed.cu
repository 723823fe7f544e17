// TODO: the same file, with the fault fixed
