package helper

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
)

// maxAsked is how many nodes may be asked about at once, those whose turn has not
// come included, for each command that may run: a command that hangs must not
// hold all that works on requests, of which there are 256.
const maxApprovals = 4

// Approve asks the command whether a node may have a certificate, by the
// contract of Puppet's policy-based autosigning: the identity is its last
// argument, the certificate request (DER) is on its standard input in PEM, and
// exit status 0 is a yes. What it prints goes to the log, and decides nothing. It
// waits for its turn first, or, if too many do already, is not asked: the node
// asks again. Nil is a yes; any error is not, and wraps [ErrFailed],
// [ErrTimeout] or [ErrOutput].
func (h *Helper) Approve(ctx context.Context, id wire.Identity, csr []byte) error {
	select {
	case h.approvals <- struct{}{}:
		defer func() { <-h.approvals }()
	default:
		return fmt.Errorf("autosign: %w: not asked, it is asked about %d nodes already", ErrFailed, cap(h.approvals))
	}
	done, err := h.acquire(ctx)
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	defer done()
	start := time.Now() // elapsed time only
	input := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
	_, stderr, err := h.run(ctx, input, string(id))
	h.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "autosign decided", slog.String("node", string(id)), slog.Bool("ok", err == nil),
		slog.Duration("elapsed", time.Since(start)), slog.String("stderr", string(stderr)))
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	return nil
}
