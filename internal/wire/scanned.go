package wire

import "unicode/utf8"

// once reports bad if a member was there already.
func (s *scanner) once(seen *uint, bit uint) {
	if *seen&(1<<bit) != 0 {
		s.bad = true
	}
	*seen |= 1 << bit
}

// scanEnroll decodes an enroll request, or reports that it cannot. The facts
// share memory with b.
func scanEnroll(b []byte) (*EnrollRequest, bool) {
	r := new(EnrollRequest)
	var seen uint
	ok := scanPlain(b, func(s *scanner, name []byte) {
		switch string(name) {
		case "id":
			s.once(&seen, 0)
			r.ID = string(s.text())
		case "identity":
			s.once(&seen, 1)
			r.Identity = string(s.text())
		case "token":
			s.once(&seen, 2)
			r.Token = Secret(s.text())
		case "csr":
			s.once(&seen, 3)
			r.CSR = s.base64()
		case "facts":
			s.once(&seen, 4)
			r.Facts = s.raw()
		case "agent":
			s.once(&seen, 5)
			r.Agent = string(s.text())
		case "boot":
			s.once(&seen, 6)
			r.Boot = string(s.text())
		default: // continuity, too: one machine in a life has it
			s.bad = true
		}
	})
	return r, ok
}

// scanApplied decodes a confirmation, or reports that it cannot.
func scanApplied(b []byte) (*Applied, bool) {
	a := new(Applied)
	var seen uint
	ok := scanPlain(b, func(s *scanner, name []byte) {
		switch string(name) {
		case "id":
			s.once(&seen, 0)
			a.ID = string(s.text())
		case "identity":
			s.once(&seen, 1)
			a.Identity = string(s.text())
		case "serial":
			s.once(&seen, 2)
			a.Serial = string(s.text())
		case "digest":
			s.once(&seen, 3)
			a.Digest = string(s.text())
		case "signature":
			s.once(&seen, 4)
			a.Signature = s.base64()
		default:
			s.bad = true
		}
	})
	return a, ok
}

// scanSealed decodes the envelope of a sealed message, or reports that it
// cannot.
func scanSealed(b []byte) (*Envelope, bool) {
	if len(b) < len(sealedStart) || string(b[:len(sealedStart)]) != sealedStart || !utf8.Valid(b) {
		return nil, false
	}
	e := &Envelope{Version: Version, Sealed: true}
	var seen uint
	s := &scanner{b: b, i: len(sealedStart)}
	s.rest(func(name []byte) {
		switch string(name) {
		case "key":
			s.once(&seen, 0)
			e.Key = string(s.text())
		case "enc":
			s.once(&seen, 1)
			e.Encapsulated = s.base64()
		case "ct":
			s.once(&seen, 2)
			e.Ciphertext = s.base64()
		default:
			s.bad = true
		}
	})
	return e, !s.bad && s.i == len(b) && len(e.Ciphertext) > 0
}
