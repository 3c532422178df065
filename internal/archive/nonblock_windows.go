package archive

// NonBlock does nothing: opening never waits here.
const NonBlock = 0
