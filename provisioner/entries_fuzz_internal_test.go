package provisioner

import ()

// An entry is what a store or a journal has of an operator's word, and whoever waits.
type entry interface{ Check() error }

// entries are one of each kind, made anew.
func entries() []entry {
	return []entry{
		new(Answer), new(Allowance), new(Pause), new(Revocation), new(OperatorEntry), new(SignerEntry), new(CRL), new(ClaimEntry), new(Waiter), new(Component),
	}
}
