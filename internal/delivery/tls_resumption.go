package delivery

import "crypto/tls"

// How agents reconnect
//
// An agent that has shown its certificate gets a ticket. With the ticket it reconnects
// without a signature or its verification at either end. Keys are still agreed on, in a
// way that resists quantum computers, and that is the remaining cost of a handshake.
//
// The ticket holds the certificate, encrypted by a key that this process makes and renews
// daily. Therefore the agent of a ticket is the one that the certificate names, until the
// certificate ends, and each session is still checked. A hub after a restart, and any
// other hub, cannot read the ticket: the handshake is then a full one.

// emptyTicket is for peers that are no agents. It resumes nothing.
var emptyTicket = []byte{0}

// enableResumption lets agents reconnect to the configuration's listener by tickets.
func enableResumption(config *tls.Config) {
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		if identityOf(state).uid == "" {
			return emptyTicket, nil
		}
		return config.EncryptTicket(state, session)
	}
	// crypto/tls itself checks the certificate of a ticket and its end.
	config.UnwrapSession = config.DecryptTicket
}
