package cli

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress is a progress bar on a terminal. Elsewhere it shows nothing. It is safe for concurrent use.
type Progress struct {
	bar *progressbar.ProgressBar // nil shows nothing
}

// NewProgress starts a bar on w for a number of steps, -1 if unknown. what names the steps, such as "nodes".
func NewProgress(w io.Writer, label, what string, total int) *Progress {
	if !IsTerminal(w) {
		return &Progress{}
	}
	return &Progress{bar: progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(label),
		progressbar.OptionEnableColorCodes(false),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(what),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

// Add counts n steps as done. It ignores errors of the terminal.
func (p *Progress) Add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

// Done removes the bar.
func (p *Progress) Done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
