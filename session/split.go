package session

import "bytes"

// splitter splits a stream into the part before its marker and the part after it. It drops a second marker
// directly after the first: the setup may have merged both streams into one, as a terminal does.
type splitter struct {
	marker []byte
	passed bool   // the marker has arrived
	single bool   // it is decided whether a second marker follows; if so, it was dropped
	held   []byte // bytes that may be the beginning of a marker
}

// take returns the parts of the stream that are now known to belong to the setup and to the command.
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

// rest returns the bytes that are held back at the end of the stream.
func (s *splitter) rest() (setup, command []byte) {
	held := s.held
	s.held = nil
	if s.passed {
		return nil, held
	}
	return held, nil
}

// beginning returns the number of bytes at the end of p that may be the beginning of marker.
func beginning(p, marker []byte) int {
	for n := min(len(p), len(marker)-1); n > 0; n-- {
		if bytes.HasSuffix(p, marker[:n]) {
			return n
		}
	}
	return 0
}
