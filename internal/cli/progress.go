package cli

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress shows how far a piece of work is, on a terminal. Elsewhere it
// shows nothing. It is safe for concurrent use.
type Progress struct {
	bar *progressbar.ProgressBar // nil shows nothing
}

// NewProgress starts a bar on w for work of total steps under a label. Steps are what, such as nodes.
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
		progressbar.OptionThrottle(50*time.Millisecond), // 20 times a second looks steady
		progressbar.OptionClearOnFinish(),
	)}
}

// Add says that n more steps are done. Failing to draw is no failure of the
// work, so it is ignored.
func (p *Progress) Add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n)
	}
}

// Done takes the bar off the terminal.
func (p *Progress) Done() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
