package chaos_test

import "time"

// year is how far clocks jump.
const year = 365 * 24 * time.Hour

// provisionerBehind sets the provisioner's clock back by a year while nodes
// enroll. It issues nothing until the clock is right again.
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

// provisionerAhead sets the provisioner's clock ahead by a year while nodes
// enroll, and back again. A jump that is taken back within an hour is on no
// record, so that nobody is locked out.
func provisionerAhead(r *run) {
	r.renewed = true // what was issued before has ended by that clock
	r.embedded(size(150, 5000))
	r.w.start()
	r.somewhere(0.1, 0.3)
	r.d.clock.move(year)
	r.somewhere(0.5, 0.7)
	r.d.clock.move(0)
	r.recovers()
	r.settle()
}
