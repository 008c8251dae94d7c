package chaos_test

// storm has very many nodes enroll at once, and kills the provisioner in the
// middle of them.
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
