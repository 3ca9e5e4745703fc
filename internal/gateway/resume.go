package gateway

import "crypto/tls"

// How agents come back
//
// An agent that has shown its certificate is given a ticket, by which it comes back
// without either end signing or verifying anything: keys are still agreed on anew, in a
// way that quantum computers do not break, and that is what is left of a handshake's
// cost. The ticket holds the certificate, sealed by a key that this process has made and
// renews daily, so that who comes by a ticket is whom the certificate names, until that
// certificate ends, and each stream is checked as ever. A hub that was started anew, and
// any other hub, cannot read it: then the handshake is a full one, and nobody notices.

// nobodysTicket is for those who ask for a ticket and are no agents. It opens nothing.
var nobodysTicket = []byte{0}

// resumable lets agents come back to the configuration's listener by tickets.
func resumable(config *tls.Config) {
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		if identityOf(state).uid == "" {
			return nobodysTicket, nil
		}
		return config.EncryptTicket(state, session)
	}
	// What a ticket says of the certificate, its end included, crypto/tls checks itself.
	config.UnwrapSession = config.DecryptTicket
}
