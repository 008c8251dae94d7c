package natsapi

import (
	"encoding/json"
	"strings"
)

// requestInfo is the part that we use of what the broker says of a requester,
// in the header that `share: true` adds (server.ClientInfo of nats-server).
type requestInfo struct {
	Host    string `json:"host"`
	Server  string `json:"server"` // what the server that the client is at calls itself
	Account string `json:"acc"`
	User    string `json:"user"` // what the gate registered: in accountFleet the identity in the certificate, else the name of the sealed session if one was proven
}

// parseInfo reads what the broker says of a requester. What it cannot read is
// empty.
func parseInfo(header string) requestInfo {
	if info, ok := quickInfo(header); ok {
		return info
	}
	var info requestInfo
	_ = json.Unmarshal([]byte(header), &info) // ours
	return info
}

// quickInfo reads a header that is one object without anything escaped, as the
// broker writes nearly all of them, or reports that this is none.
//
// Without a backslash every quote begins or ends a string, and a string before
// a colon is the name of a member. So text that a client has chosen, such as its
// connection's name, cannot pass for a member of its own.
func quickInfo(header string) (requestInfo, bool) {
	if !strings.HasPrefix(header, "{") || !strings.HasSuffix(header, "}") || strings.ContainsAny(header[1:], `\{`) {
		return requestInfo{}, false
	}
	host, ok1 := quickMember(header, `"host":"`)
	account, ok2 := quickMember(header, `"acc":"`)
	user, ok3 := quickMember(header, `"user":"`)
	server, ok4 := quickMember(header, `"server":"`)
	return requestInfo{Host: host, Server: server, Account: account, User: user}, ok1 && ok2 && ok3 && ok4
}

// quickMember returns the text of the member that begins as given: "" if there
// is none, and false if there are several or if the header is malformed.
func quickMember(header, begin string) (string, bool) {
	i := strings.Index(header, begin)
	if i < 0 {
		return "", true
	}
	rest := header[i+len(begin):]
	end := strings.IndexByte(rest, '"')
	if c := header[i-1]; c != '{' && c != ',' || end < 0 || strings.Contains(rest, begin) {
		return "", false
	}
	return rest[:end], true
}
