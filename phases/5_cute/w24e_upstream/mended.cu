// TODO: the same file, with the fault mended
