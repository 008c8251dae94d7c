package provisioner

import (
	"bytes"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// scanBrief reads a record as [Record.Encode] writes nearly all of them: without
// blanks and without escapes in what is looked at. It is not ok with anything else,
// which is for encoding/json to read or to refuse; what it is ok with it reads as
// encoding/json does.
func scanBrief(record []byte) (r brief, ok bool) {
	s := briefScanner{b: record}
	s.object(func(name string) {
		switch name {
		case "schema":
			r.Schema = s.number()
		case "identity":
			r.Identity = wire.Identity(s.text())
		case "state":
			r.State = State(s.text())
		case "current":
			s.issued(&r.Current)
		case "next":
			s.issued(&r.Next)
		case "superseded":
			s.before(&r)
		case "tid":
			r.Token = jwt.TokenID(s.text())
		case "site":
			r.Site = jwt.Site(s.text())
		case "agent":
			r.Agent = s.text()
		case "facts":
			r.Facts = s.facts()
		case "decision":
			s.object(func(name string) {
				switch name {
				case "reason":
					r.Decision.Reason = Reason(s.text())
				case "policy":
					r.Decision.Policy = s.text()
				case "notes", "allowed":
					s.skip()
				default:
					s.bad = true
				}
			})
		case "owned_since":
			r.OwnedSince = s.time()
		case "first_enrolled_at":
			r.FirstEnrolledAt = s.time()
		case "updated_at":
			r.UpdatedAt = s.time()
		case "lineage", "attempt", "grant", "revoked_through", "signer", "source", "terms", "boot", "provisioned_at":
			s.skip()
		default:
			s.bad = true // encoding/json may take it for one of these: it does not tell case
		}
	})
	return r, !s.bad && s.i == len(s.b)
}

// A briefScanner reads JSON from the front. Once it is bad it reads no more.
type briefScanner struct {
	b   []byte
	i   int
	bad bool
}

// peek returns the next byte, 0 at the end.
func (s *briefScanner) peek() byte {
	if s.bad || s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *briefScanner) want(c byte) {
	if s.peek() != c {
		s.bad = true
		return
	}
	s.i++
}

// object calls member for each member of an object; it has to read the value.
func (s *briefScanner) object(member func(name string)) {
	s.want('{')
	for first := true; !s.bad && (first || s.peek() == ','); first = false {
		if !first {
			s.i++
		}
		name := s.quoted()
		s.want(':')
		if !s.bad {
			member(string(name))
		}
	}
	s.want('}')
}

// quoted reads a text without escapes and returns what is between the quotes.
func (s *briefScanner) quoted() []byte {
	s.want('"')
	if s.bad {
		return nil
	}
	n := bytes.IndexByte(s.b[s.i:], '"')
	if n < 0 {
		s.bad = true
		return nil
	}
	text := s.b[s.i : s.i+n]
	for _, c := range text {
		if c < 0x20 || c >= 0x7f || c == '\\' {
			s.bad = true
			return nil
		}
	}
	s.i += n + 1
	return text
}

func (s *briefScanner) text() string { return string(s.quoted()) }

// number reads a small whole number.
func (s *briefScanner) number() (n int) {
	from := s.i
	for ; s.peek() >= '0' && s.peek() <= '9'; s.i++ {
		n = 10*n + int(s.b[s.i]-'0')
	}
	if digits := s.i - from; digits == 0 || digits > 18 || digits > 1 && s.b[from] == '0' {
		s.bad = true
	}
	return n
}

// time reads a time as encoding/json does.
func (s *briefScanner) time() (t time.Time) {
	if text := s.quoted(); !s.bad {
		s.bad = t.UnmarshalText(text) != nil
	}
	return t
}

// issued reads what is looked at of a certificate, which is there once.
func (s *briefScanner) issued(i **briefIssued) {
	if *i != nil {
		s.bad = true
		return
	}
	*i = new(briefIssued)
	s.object(func(name string) {
		switch name {
		case "serial":
			(*i).Serial = s.text()
		case "not_after":
			(*i).NotAfter = s.time()
		case "key_hash", "der", "not_before", "digest", "offered_at":
			s.skip()
		default:
			s.bad = true
		}
	})
}

// before reads how many superseded certificates there are; they are there once.
func (s *briefScanner) before(r *brief) {
	if r.Before != nil {
		s.bad = true
		return
	}
	s.want('[')
	for first := true; !s.bad && (first || s.peek() == ','); first = false {
		if !first {
			s.i++
		}
		s.object(func(string) { s.skip() })
		r.Before = append(r.Before, struct{}{})
	}
	s.want(']')
}

// facts reads facts as they are written: some, in the order of their names.
func (s *briefScanner) facts() Facts {
	const usual = 8 // more than [DefaultKeptFacts]
	facts := make(Facts, 0, usual)
	s.object(func(name string) {
		if n := len(facts); n > 0 && name <= facts[n-1].Name {
			s.bad = true
		}
		facts = append(facts, Fact{name, s.text()})
	})
	return facts
}

// skip passes over a value that is of no interest: texts, whole numbers, flags,
// and lists and objects of these.
func (s *briefScanner) skip() { s.skipAt(0) }

func (s *briefScanner) skipAt(depth int) {
	const deep = 16 // terms have five levels
	if depth > deep {
		s.bad = true
		return
	}
	switch c := s.peek(); {
	case c == '"':
		s.quoted()
	case c == '{' && s.i+1 < len(s.b) && s.b[s.i+1] == '}':
		s.i += 2
	case c == '{':
		s.object(func(string) { s.skipAt(depth + 1) })
	case c == '[' && s.i+1 < len(s.b) && s.b[s.i+1] == ']':
		s.i += 2
	case c == '[':
		for s.i++; ; s.i++ {
			if s.skipAt(depth + 1); s.peek() != ',' {
				break
			}
		}
		s.want(']')
	case c >= '0' && c <= '9':
		s.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
				s.i += len(word)
				return
			}
		}
		s.bad = true
	}
}
