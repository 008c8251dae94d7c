package waiting

import (
	"fmt"

	"muster/internal/limit"
)

// Shares of the list. Token holders can invent names, so no address and no token can take all of it.
const (
	MaxPerSource = 64     // keys of one address, or of one /64 in IPv6
	MaxPerToken  = 1024   // keys with one token, and keys without one
	MaxKeys      = 16_384 // in all
)

// room returns an error if a share of the key is used up. The caller holds mu.
func (ws *List) room(w *Key) error {
	source := limit.Source(w.Source)
	switch {
	case ws.sources[source] >= MaxPerSource:
		name := limit.SourceName(source, w.Source)
		return fmt.Errorf("%w: %d keys from %s, the limit: `muster node forget --address %s` makes room", ErrTooMany,
			MaxPerSource, name, name)
	case ws.tokens[w.Token] >= MaxPerToken && w.Token == "":
		return fmt.Errorf("%w: %d keys without a token, the limit: `muster node pending --by-source` shows from where",
			ErrTooMany, MaxPerToken)
	case ws.tokens[w.Token] >= MaxPerToken:
		return fmt.Errorf("%w: %d keys with one token, the limit: `muster node forget --token-id %s` makes room",
			ErrTooMany, MaxPerToken, w.Token)
	case len(ws.keys) >= MaxKeys:
		return fmt.Errorf("%w: %d keys, the limit: `muster node pending --by-source` shows from where", ErrTooMany,
			MaxKeys)
	}
	return nil
}

// crowded reports whether a share of the key is used to three quarters. The caller holds mu.
func (ws *List) crowded(w *Key) bool {
	return ws.sources[limit.Source(w.Source)] >= MaxPerSource*3/4 || ws.tokens[w.Token] >= MaxPerToken*3/4 ||
		len(ws.keys) >= MaxKeys*3/4
}

// The caller holds mu.
func (ws *List) count(w *Key, by int) {
	source := limit.Source(w.Source)
	if ws.sources[source] += by; ws.sources[source] == 0 {
		delete(ws.sources, source)
	}
	if ws.tokens[w.Token] += by; ws.tokens[w.Token] == 0 {
		delete(ws.tokens, w.Token)
	}
}

// leave frees the place of a key. The caller holds mu.
func (ws *List) leave(h Holder) {
	if s := ws.keys[h]; s != nil {
		ws.count(s.Key, -1)
		delete(ws.keys, h)
	}
}
