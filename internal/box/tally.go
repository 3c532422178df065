package box

// tally counts the commands that this process runs in the service, by all of its guests and by the Unit, so that each
// can find out whether others ran meanwhile. Guests.mu protects it.
type tally struct {
	running int
	begun   int
}

// attend counts a command as running until depart is called. alone reports whether no other has run since attend. Beside a main
// process that is the service's own program, no command is alone.
func (m *Guests) attend() (alone func() bool, depart func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.commands
	first := t.running == 0 && m.cfg.Serves
	t.running++
	t.begun++
	place := t.begun
	return func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return first && t.begun == place
		}, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			t.running--
		}
}
