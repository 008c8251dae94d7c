package provisioner

import (
	"slices"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// A holder is what a use belongs to: a key for one identity. DESIGN.md counts
// keys; counting the identity as well is stricter, since one key could
// otherwise collect any number of names for a single use.
type holder struct {
	key      string
	identity wire.Identity
}

// A book is the count of one token's uses up to a revision of its log.
//
// A holder holds a use while any claim of its attempts is not released. The
// rule that everything rests on: held <= uses after every entry. Each entry is
// appended under the revision that it was counted on, so no other entry comes
// between the counting and the writing.
//
// Every attempt writes a claim of its own, also for a holder that holds already
// and costs nothing, because a release takes back one attempt's claim: what
// another attempt of the same key relied on stays.
//
// Why at most so many get a certificate: an attempt writes its record only
// after its claim is in the log, and its claim is only released once it is
// certain that it wrote none, and never will. So each holder with a certificate
// has a claim that is never released, and is among those that are held at the
// end of the log.
//
// Why so many do: a holder that holds a use without a certificate is a node
// that retries, at no cost, or gives it back, or has died, and then an operator
// releases it.
type book struct {
	at   trust.Revision
	held map[holder][]string // attempts whose claims are not released; never empty
}

// apply takes the entry at a revision into account. An entry that has been
// already changes nothing.
func (b *book) apply(e *ClaimEntry, at trust.Revision) {
	if at <= b.at {
		return
	}
	b.at = at
	for _, r := range e.Releases {
		b.release(r)
	}
	if b.held == nil {
		b.held = make(map[holder][]string)
	}
	for _, c := range e.Claims {
		h := holder{c.Key, c.Identity}
		b.held[h] = append(b.held[h], c.Attempt)
	}
}

// release takes back one attempt or all of a holder. A release of what is not
// held, such as the same one twice, changes nothing.
func (b *book) release(r TokenRelease) {
	h := holder{r.Key, r.Identity}
	attempts := b.held[h]
	kept := attempts[:0]
	for _, a := range attempts {
		if !r.All && a != r.Attempt {
			kept = append(kept, a)
		}
	}
	if len(kept) == 0 {
		delete(b.held, h)
		return
	}
	b.held[h] = kept
}

// has reports whether the attempt's claim is in the log and not released.
func (b *book) has(key string, id wire.Identity, attempt string) bool {
	return slices.Contains(b.held[holder{key, id}], attempt)
}
