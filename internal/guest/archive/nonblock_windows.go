package archive

// NonBlock is 0: opening a file never blocks on Windows.
const NonBlock = 0
