package chaos_test

// storm enrolls very many nodes at once and kills the provisioner meanwhile.
func storm(r *run) {
	r.embedded(size(500, 20_000))
	r.w.job.Spread = 0
	r.w.start()
	r.somewhere(0.25, 0.35)
	r.d.p.kill()
	r.d.start()
	r.recovers()
	r.settle()
}
