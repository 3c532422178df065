package session

import "bytes"

// splitter tells what a stream brings before its marker from what it brings after it. A second marker
// right behind the first is dropped: a set-up may have made one stream of the two, and so has a terminal.
type splitter struct {
	marker []byte
	passed bool   // the marker has come
	single bool   // so has what is behind it, and that is no second one, or it was dropped
	held   []byte // what may be a marker's beginning
}

// take returns what of the stream is now known to be the set-up's and the command's.
func (s *splitter) take(p []byte) (setup, command []byte) {
	if s.single {
		return nil, p
	}
	s.held = append(s.held, p...)
	if !s.passed {
		i := bytes.Index(s.held, s.marker)
		if i < 0 {
			known := len(s.held) - beginning(s.held, s.marker)
			setup = bytes.Clone(s.held[:known])
			s.held = append(s.held[:0], s.held[known:]...)
			return setup, nil
		}
		s.passed = true
		setup = bytes.Clone(s.held[:i])
		s.held = s.held[i+len(s.marker):]
	}
	if len(s.held) < len(s.marker) && bytes.HasPrefix(s.marker, s.held) {
		return setup, nil
	}
	s.single = true
	command = bytes.TrimPrefix(s.held, s.marker)
	s.held = nil
	return setup, command
}

// rest returns what is held back at the end of the stream.
func (s *splitter) rest() (setup, command []byte) {
	held := s.held
	s.held = nil
	if s.passed {
		return nil, held
	}
	return held, nil
}

// beginning returns how many bytes at the end of p are the beginning of marker.
func beginning(p, marker []byte) int {
	for n := min(len(p), len(marker)-1); n > 0; n-- {
		if bytes.HasSuffix(p, marker[:n]) {
			return n
		}
	}
	return 0
}
