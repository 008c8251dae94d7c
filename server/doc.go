// Package server is the agent on a node, as Choria's server is: it decides
// whether the node has to be provisioned, enrolls it with the token that lies
// on its image, puts the certificate and the configuration it gets on disk, all
// or nothing, and then keeps a mutually authenticated connection to the fleet
// over which it reports that the node is alive and takes commands.
//
// A [Server] runs one mode after the other. Both share an agent: the state of
// the disk that decides the mode (state), the sets of files (sets), the clock,
// the orders that were accepted (package orders), connections (package link) and what was logged
// (notices). An enroller is provisioning mode; a member is normal mode, with its
// reports, confirming, renewal and commands.
//
// # Trust
//
// The node does not verify its token; that is the provisioner's to do. What
// the token says is believed as far as the image is: where the brokers are, and
// which authority to expect. A reply is believed if it repeats the request's
// random id and if the certificate in it is for this node's key and name, under
// the pinned authority where the token pins one (package trust). In plain mode,
// without a pin, that is as much as Choria's nodes can know; see
// docs/security.md.
//
// The private key is made here, is written with mode 0600 and goes nowhere.
//
// # Files
//
// Everything that belongs together is one set in a generation of the ssl
// directory, and changes by one rename(2): package files has the argument.
// Beside the sets lie .lock, which keeps a second agent out, .clock, the latest
// time seen, and .orders, the commands that were accepted.
package server
