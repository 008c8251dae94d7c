package chaos_test

import (
	"syscall"
	"time"
)

// killProvisioner kills the provisioner with its broker and store again and again while nodes enroll.
func killProvisioner(r *run) {
	r.embedded(size(150, 5000))
	r.w.start()
	for i := range 3 {
		r.somewhere(0.1+0.25*float64(i), 0.3+0.25*float64(i))
		r.d.p.kill()
		r.d.start()
		r.recovers()
	}
	r.settle()
}

// stopProvisioner stops the provisioner for longer than a request waits, and continues it.
func stopProvisioner(r *run) {
	r.embedded(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	r.d.p.signal(syscall.SIGSTOP)
	hold(lasting(2*time.Second, 30*time.Second))
	r.d.p.signal(syscall.SIGCONT)
	r.recovers()
	r.settle()
}

// restartAll restarts the provisioner in order, and kills and restarts all nodes, in turns, while they enroll.
func restartAll(r *run) {
	r.embedded(size(300, 5000))
	r.addAgents(size(2, 10), r.d.address())
	r.w.start()
	for i := range 3 {
		r.somewhere(0.05+0.25*float64(i), 0.25+0.25*float64(i))
		r.d.p.stop()
		r.w.kill()
		for _, a := range r.agents {
			a.p.kill()
		}
		r.d.serve()
		r.w.start()
		for _, a := range r.agents {
			a.start()
		}
		r.recovers()
	}
	r.settle()
}
