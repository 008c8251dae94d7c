package puppet

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

const (
	typeJSON     = "application/json"
	typeRichJSON = "application/vnd.puppet.rich+json"
	typeBinary   = "application/octet-stream"
)

// Limits: a run has 10 to 20 kB of facts, encoded twice, and a report of up to 135 kB.
const (
	maxFactsBody  = 2 << 20
	maxReportBody = 4 << 20
)

// runRoutes are the calls of a node's run. Nodes have no plugins, and a catalog names no file to fetch.
func (s *Server) runRoutes() []route {
	const v3 = "/puppet/v3/"
	get, put := http.MethodGet, http.MethodPut
	return []route{
		{get, v3 + "node/", ownNode, 0, document(nodeOf, typeJSON)},
		{http.MethodPost, v3 + "catalog/", ownNode, maxFactsBody, document(s.catalog, typeRichJSON, typeJSON)},
		{put, v3 + "facts/", ownNode, maxFactsBody, document(s.facts, typeJSON)},
		{put, v3 + "report/", ownNode, maxReportBody, document(s.report, typeJSON)},
		{get, v3 + "file_metadatas/", anyNode, 0, document(metadatas, typeJSON)},
		{get, v3 + "file_metadata/", anyNode, 0, document(metadata, typeJSON)},
		{get, v3 + "file_content/", anyNode, 0, document(noFile, typeBinary)},
		{get, v3 + "static_file_content/", anyNode, 0, document(noFile, typeBinary)},
		{http.MethodHead, v3 + "file_bucket_file/", anyNode, 0, document(noFile, typeBinary)},
		{get, v3 + "file_bucket_file/", anyNode, 0, document(noFile, typeBinary)},
	}
}

type object map[string]any

// A fault is the answer to a failed call. Clients show its message.
type fault struct {
	status  int
	message string
	kind    string        // issue_kind, in documents
	after   time.Duration // a time to wait, 0: none
}

func (f *fault) Error() string { return f.message }

func newFault(status int, message string) *fault { return &fault{status: status, message: message} }

func badDocument(format string, args ...any) error {
	return &fault{http.StatusBadRequest, "Bad Request: " + fmt.Sprintf(format, args...), "RUNTIME_ERROR", 0}
}

// faultOf returns the answer for an error. Agents should soon ask a busy or broken provisioner again.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	r := provisioner.RefusalOf(err, wire.CodeUnavailable)
	f := &fault{status: http.StatusForbidden, kind: "RUNTIME_ERROR", message: strings.TrimSpace(reason(r))}
	if wait := r.Message().Wait(); wire.MeaningOf(r.Code).Retry && wait < time.Minute {
		f.status, f.after = http.StatusServiceUnavailable, max(wait, time.Second)
	}
	return f
}

// document serves what a function returns, as JSON of the first of the types that the client accepts.
func document(
	of func(r *request, environment string) (any, error), types ...string,
) func(http.ResponseWriter, *request) {
	return func(w http.ResponseWriter, r *request) {
		environment, is := "", false
		if q := r.URL.Query(); q.Has("environment") {
			environment, is = q.Get("environment"), true
		}
		var v any
		chosen, err := acceptable(r, types)
		switch {
		case !is:
			text(w, http.StatusBadRequest, "An environment parameter must be specified")
			return
		case !validEnvironment(environment):
			text(w, http.StatusBadRequest, fmt.Sprintf("The environment must be purely alphanumeric, not '%.80s'",
				environment))
			return
		case err == nil:
			v, err = of(r, environment)
		}
		status := http.StatusOK
		if err != nil {
			f := faultOf(err)
			if f.after > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(f.after.Seconds())))
			}
			status, chosen, v = f.status, typeJSON, object{"message": f.message, "issue_kind": f.kind}
		}
		b, err := wire.EncodeJSON(v)
		if err != nil {
			status, b = http.StatusInternalServerError, []byte(`{"message":"Server Error"}`)
		}
		w.Header().Set("Content-Type", chosen)
		w.WriteHeader(status)
		_, _ = w.Write(b) // the client has gone
	}
}

// acceptable returns the first of the types that the client accepts.
func acceptable(r *request, types []string) (string, error) {
	i := slices.IndexFunc(types, func(t string) bool { return accepts(r.Request, t) })
	if i < 0 {
		return "", &fault{status: http.StatusNotAcceptable, kind: "UNSUPPORTED_FORMAT",
			message: "Not Acceptable: No supported formats are acceptable"}
	}
	return types[i], nil
}

func validEnvironment(name string) bool {
	word := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return len(name) <= 128 && strings.TrimFunc(name, word) == ""
}

// nodeOf repeats the environment, since another one would move the agent.
func nodeOf(r *request, environment string) (any, error) {
	return object{"name": r.name, "environment": environment}, nil
}

func noFile(r *request, _ string) (any, error) {
	return nil, &fault{status: http.StatusNotFound, kind: "RESOURCE_NOT_FOUND",
		message: fmt.Sprintf("Not Found: Could not find %.300q", r.name)}
}

// directory is an empty plugin directory. Agents want the entry of the directory itself, and a decimal mode.
func directory(query url.Values, relative any) object {
	links := query.Get("links")
	if links != "manage" {
		links = "follow"
	}
	return object{
		"path":          "/etc/puppetlabs/code/empty",
		"relative_path": relative,
		"links":         links,
		"owner":         0,
		"group":         0,
		"mode":          0o755,
		"type":          "directory",
		"checksum":      object{"type": "ctime", "value": "{ctime}2026-01-01 00:00:00 +0000"},
		"destination":   nil,
	}
}

func isPluginMount(name string) bool { return name == "plugins" || name == "pluginfacts" }

func metadatas(r *request, environment string) (any, error) {
	if !isPluginMount(r.name) {
		return noFile(r, environment)
	}
	return []object{directory(r.URL.Query(), ".")}, nil
}

func metadata(r *request, environment string) (any, error) {
	if !isPluginMount(r.name) {
		return noFile(r, environment)
	}
	return directory(r.URL.Query(), nil), nil
}
