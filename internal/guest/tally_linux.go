package guest

// tally counts commands, so that each can find out whether others had processes while it ran. A command counts from
// before its start until the last of its processes has ended. The service's own program is one of them, health checks are not.
type tally struct {
	running int
	begun   int // since the start of the guest
}

// attend counts the command as running.
func (c *command) attend() {
	if c.req.Check {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	t := &c.g.commands
	c.first = t.running == 0
	t.running++
	t.begun++
	c.place, c.attends = t.begun, true
}

// depart ends what attend began. Only the first call counts.
func (c *command) depart() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.attends {
		c.attends = false
		c.g.commands.running--
	}
}

// alone reports whether no other command had processes since attend. Those that another user's guest keeps are known by
// their reserved numbers.
func (c *command) alone() bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.first && c.g.commands.begun == c.place && len(c.g.reserved) == 0
}

// quiet reports whether no code of the sandbox runs that could have kept this command from starting.
func (c *command) quiet() bool {
	return c.alone() && (!contained.Load() || c.g.isFirst() && !c.g.visited())
}
