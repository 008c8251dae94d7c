package helper

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
)

// maxApprovals bounds waiting approvals per slot: a command that hangs must not block all 256 workers.
const maxApprovals = 4

// Approve asks the command whether a node may have a certificate, like Puppet's policy-based autosigning. The last
// argument is the identity, standard input is the CSR in PEM, and exit status 0 approves. Errors wrap [ErrFailed],
// [ErrTimeout] or [ErrOutput].
func (h *Helper) Approve(ctx context.Context, id wire.Identity, csr []byte) error {
	select {
	case h.approvals <- struct{}{}:
		defer func() { <-h.approvals }()
	default:
		return fmt.Errorf("autosign: %w: not run: %d nodes already wait for it", ErrFailed, cap(h.approvals))
	}
	done, err := h.acquire(ctx)
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	defer done()
	start := time.Now() // elapsed time only
	input := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
	_, stderr, err := h.run(ctx, input, string(id))
	h.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "autosign decided", slog.String("node", string(id)),
		slog.Bool("ok", err == nil),
		slog.Duration("elapsed", time.Since(start)), slog.String("stderr", string(stderr)))
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	return nil
}
