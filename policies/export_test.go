package policies

// Whole returns an engine with the policy of e that gives it the whole input, for
// tests that compare.
func (e *Engine) Whole() *Engine {
	p := *e.current.Load()
	p.input = everything
	whole := &Engine{cfg: e.cfg}
	whole.current.Store(&p)
	return whole
}

// everything selects all of a value.
var everything = &selection{whole: true}
