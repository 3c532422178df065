package wire

import (
	"errors"
	"io"
	"testing"
)

func TestContent(t *testing.T) {
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		send func(s *Stream) error
		text string
		err  error // nil for the end of the content
	}{
		"pieces": {func(s *Stream) error {
			return errors.Join(s.Send(Stdin, []byte("one")), s.Send(Stdin, make([]byte, MaxData)), s.SendEnd(Stdin))
		}, "one" + string(make([]byte, MaxData)), nil},
		"empty":           {func(s *Stream) error { return s.SendEnd(Stdin) }, "", nil},
		"another channel": {func(s *Stream) error { return errors.Join(s.Send(Stdin, []byte("one")), s.Send(Stderr, []byte("x"))) }, "one", wrong},
		"another's end":   {func(s *Stream) error { return s.SendEnd(Stdout) }, "", wrong},
		"a message":       {func(s *Stream) error { return s.SendMessage([]byte("{}")) }, "", wrong},
		"no end":          {func(s *Stream) error { return s.Send(Stdin, []byte("one")) }, "one", wrong},
	} {
		t.Run(name, func(t *testing.T) {
			opened := make(chan *Stream, 1)
			host, _ := newPair(t, func(s *Stream, _ []byte) { opened <- s })
			s := open(t, host, "content")
			if err := c.send(s); err != nil {
				t.Fatal(err)
			}
			s.Close()
			in := &Content{Stream: <-opened, Channel: Stdin, Wrong: func(Event, error) error { return wrong }}
			for range 2 { // the end is permanent
				if text, err := io.ReadAll(in); string(text) != c.text || !errors.Is(err, c.err) {
					t.Errorf("got %d bytes, %v", len(text), err)
				}
				c.text = ""
			}
		})
	}
}
