package verb

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// completionTimeout bounds how long a shell waits for values after Tab.
const completionTimeout = time.Second

// Values that shells complete: names of nodes on record, names of pending nodes, and ids of tokens.
var (
	NodeNames = completed("/v1/nodes?limit=1000", func(p *fleet.Page) (names []string) {
		for i := range p.Nodes {
			names = append(names, string(p.Nodes[i].Identity))
		}
		return names
	})
	PendingNames = completed("/v1/waiting", func(p *httpapi.Pending) (names []string) {
		for _, w := range p.Waiting {
			names = append(names, string(w.Identity))
		}
		return names
	})
	TokenIDs = completed("/v1/tokens", func(answer map[string][]operate.TokenSummary) (ids []string) {
		for i := range answer["tokens"] {
			ids = append(ids, string(answer["tokens"][i].ID))
		}
		return ids
	})
)

// completed returns the values at a path of the API, or none without an answer.
func completed[T any](path string, values func(T) []string) kingpin.HintAction {
	return func() []string {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		answer, err := Get[T](ctx, incomplete(os.Args), path)
		if err != nil {
			return nil
		}
		return values(answer)
	}
}

// incomplete reads --config, --url and --login from the environment and from a command line that kingpin cannot parse
// yet.
func incomplete(args []string) *Operator {
	o := &Operator{url: os.Getenv(urlVariable)}
	o.Config = cmp.Or(os.Getenv(configVariable), DefaultConfig)
	if slices.Contains(args, "--config") && !slices.Contains(args, "--url") {
		o.url = ""
	}
	for i := range len(args) - 1 {
		switch args[i] {
		case "--config":
			o.Config = args[i+1]
		case "--url":
			o.url = args[i+1]
		case "--login":
			o.login = append(o.login, args[i+1])
		}
	}
	if login := os.Getenv(loginVariable); login != "" && o.login == nil {
		o.login = strings.Split(login, "\n")
	}
	return o
}
