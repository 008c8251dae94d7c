// Package attacks holds what has been tried on muster from outside: forged tokens, hostile requests and names, foreign
// subjects, men in the middle, floods, damaged stores, odd files and forms of other sites. Its tests run real
// processes and speak to them over real sockets, as an attacker would. `make attacks` runs it.
package attacks
