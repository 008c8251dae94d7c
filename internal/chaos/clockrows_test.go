package chaos_test

import "time"

// year is how far clocks jump.
const year = 365 * 24 * time.Hour

// provisionerBehind sets the provisioner's clock back by a year while nodes enroll. It issues nothing until the clock
// is right again.
func provisionerBehind(r *run) {
	r.embedded(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	r.d.clock.move(-year)
	r.d.p.waitFor("code=clock_behind")
	hold(lasting(time.Second, 10*time.Second))
	r.d.clock.move(0)
	r.recovers()
	r.settle()
}

// provisionerAhead sets the provisioner's clock ahead by a year while nodes enroll, and back again. The right clock
// is then behind the records, and issues nothing until an operator follows the alarm's advice.
func provisionerAhead(r *run) {
	r.renewed = true // certificates issued before have expired by that clock
	r.embedded(size(150, 5000))
	r.w.start()
	r.somewhere(0.1, 0.3)
	r.d.clock.move(year)
	r.somewhere(0.5, 0.7)
	r.d.clock.move(0)
	r.d.p.waitFor("code=clock_behind")
	r.d.muster("provisioner", "accept-clock", "--why", "the clock was a year ahead", "--config",
		"prov/provisioner.yaml")
	r.recovers()
	r.settle()
}

// agentsMoved moves the clocks of agents by a year, back or ahead: of half of them from the start, of the rest once
// they are provisioned. To an agent that is ahead new certificates have expired; it says so until its clock is right.
func agentsMoved(r *run) {
	r.renewed = true // an agent that is ahead may ask for another certificate
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.serve()
	r.agents = newAgents(r.T, r.dir, r.d.token("agents", r.d.address(), "--validity", "5y"), size(4, 20))
	for i, a := range r.agents {
		by, atOnce := -year, i%4 < 2
		if i%2 == 0 {
			by = year
		}
		if atOnce {
			a.clock.move(by)
		}
		a.start()
		if !atOnce || by < 0 {
			eventually(r.T, a.identity+" is provisioned", a.provisioned)
		}
		a.clock.move(by)
	}
	for i, a := range r.agents {
		if i%4 == 0 {
			a.p.waitFor("correct this machine")
		}
	}
	hold(lasting(3*time.Second, time.Minute)) // for the effect on provisioned agents
	for _, a := range r.agents {
		a.clock.move(0)
		a.nudge()
	}
	r.recovers()
	r.settle()
}
