package jwt

// A Budget pays for checks of signatures, which cost up to 325 µs each (RSA of
// 4096 bits, measured): forging tokens is free, and refusing them is not. A
// token pays for each key with which it is tried.
type Budget interface {
	// Charge takes the price of one check, or reports that it is not there.
	Charge() bool

	// Refund gives the price of one check back.
	Refund()
}

// account is what one verification has taken from a budget.
type account struct {
	budget Budget // nil is endless
	spent  int
}

// charge pays for one check, or reports that it cannot.
func (a *account) charge() bool {
	if a.budget == nil {
		return true
	}
	if !a.budget.Charge() {
		return false
	}
	a.spent++
	return true
}

// refund gives back all that was paid.
func (a *account) refund() {
	for range a.spent {
		a.budget.Refund()
	}
	a.spent = 0
}
