// TODO: the published kernel, with its repository, file, commit, and license in this comment
