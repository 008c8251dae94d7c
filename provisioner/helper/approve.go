package helper

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"muster/internal/wire"
)

// Approve asks the command whether a node may have a certificate, like Puppet's policy-based autosigning. The last
// argument is the identity, standard input is the CSR in PEM, and exit status 0 approves. Otherwise the first line of
// standard output is in the error, for operators. Errors wrap [ErrFailed], [ErrBusy], [ErrTimeout] or [ErrOutput].
func (h *Helper) Approve(ctx context.Context, id wire.Identity, source netip.Prefix, csr []byte) error {
	done, err := h.acquire(ctx, source)
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
	if err == nil {
		return nil
	}
	if words := firstLine(stdout); words != "" {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return fmt.Errorf("autosign: %w", err)
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
