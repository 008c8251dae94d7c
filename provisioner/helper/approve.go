package helper

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"muster/internal/wire"
)

// maxApprovals bounds waiting approvals per slot: a command that hangs must not block all 256 workers.
const maxApprovals = 4

// Approve asks the command whether a node may have a certificate, like Puppet's policy-based autosigning. The last
// argument is the identity, standard input is the CSR in PEM, and exit status 0 approves. Otherwise the first line of
// standard output is in the error, for operators. Errors wrap [ErrFailed], [ErrTimeout] or [ErrOutput].
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
	stdout, stderr, err := h.run(ctx, input, string(id))
	h.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "autosign decided", slog.String("node", string(id)),
		slog.Bool("ok", err == nil),
		slog.Duration("elapsed", time.Since(start)), slog.String("stderr", string(stderr)))
	if words := firstLine(stdout); err != nil && words != "" {
		return fmt.Errorf("autosign: %w: %s", err, words)
	}
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	return nil
}

// maxWords bounds what an autosign command says to operators.
const maxWords = 300

func firstLine(output []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	printable := func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}
	return strings.Map(printable, strings.ToValidUTF8(string(line[:min(len(line), maxWords)]), ""))
}
