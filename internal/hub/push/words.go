package push

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/trust/handshake"
)

// Reasons of the condition Pushed.
const (
	ReasonWorks              = "AgentWorks"
	ReasonStandsBy           = "StandsBy"
	ReasonCredentialsExpire  = "CredentialsExpiring"
	ReasonCredentialsMissing = "CredentialsMissing"
	ReasonCredentialsBad     = "CredentialsMalformed"
	ReasonCredentialsRefused = "CredentialsRefused"
	ReasonNotAllowed         = "NotAllowedInMember"
	ReasonUnreachable        = "MemberUnreachable"
	ReasonNotVerified        = "MemberNotVerified"
	ReasonAgentFailed        = "AgentFailed"
	ReasonCredentialsUnused  = "CredentialsNotUsed"
)

// joinAgain is what gives a cluster new credentials.
func joinAgain(cluster string) string {
	return fmt.Sprintf("atoll join %s --push --kubeconfig MEMBER", cluster)
}

func missing(cluster string) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsMissing, Message: "the hub has no credentials of the member; who has a kubeconfig of both runs: " + joinAgain(cluster)}
}

func malformed(secret string, err error) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsBad, Message: fmt.Sprintf("Secret atoll-system/%s on the hub: %v", secret, err)}
}

func unused(cluster string) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsUnused, Message: fmt.Sprintf(
		"the hub keeps credentials of the member that it does not use, for when mode becomes Push again; to drop them on the hub, and in the member to withdraw them, at either: kubectl delete secret -n atoll-system -l %s=%s", handshake.LabelPush, cluster)}
}

// failed is what becomes of an agent that ended although nobody asked it to.
func failed(err error) inventory.Pushed {
	var p *crash.Panic
	if errors.As(err, &p) {
		return inventory.Pushed{Reason: ReasonAgentFailed, Message: fmt.Sprintf(
			"the agent that the hub runs ended by a defect of its own, %v, and is started again; the log of the hub that runs it has the stack: please report it. What runs in the member goes on running", p)}
	}
	return inventory.Pushed{Reason: ReasonAgentFailed, Message: fmt.Sprintf("the agent that the hub runs ended, and is started again: %v", err)}
}

// told is what a stage of the agent means that began then.
func told(cluster string, c handshake.Credentials, s agent.Stage, since time.Time) inventory.Pushed {
	host, _, _ := strings.Cut(s.Holder, "_")
	from := "since " + since.UTC().Format(time.RFC3339) + ": "
	_, ends := c.TokenEnds()
	switch due := warnFrom(c); {
	case s.Works && !due.IsZero() && !since.Before(due):
		return inventory.Pushed{OK: true, Reason: ReasonCredentialsExpire, Message: "the hub's token for the member's API ends at " + ends.UTC().Format(time.RFC3339) + ". For another: " + joinAgain(cluster)}
	case s.Works:
		return inventory.Pushed{OK: true, Reason: ReasonWorks}
	case s.Holder != "":
		return inventory.Pushed{OK: true, Reason: ReasonStandsBy, Message: "another agent works on the member, on host " + host + "; the hub's takes over when that one ends"}
	case apierrors.IsUnauthorized(s.Err):
		return inventory.Pushed{Reason: ReasonCredentialsRefused, Message: from + "the member's API at " + c.Server + " does not take the hub's token: it has ended, was withdrawn there, or belongs to another cluster. For a new one: " + joinAgain(cluster)}
	case apierrors.IsForbidden(s.Err):
		return inventory.Pushed{Reason: ReasonNotAllowed, Message: from + s.Err.Error() + ". The ClusterRole atoll-agent in the member says what the agent may do"}
	}
	return unreached(cluster, c, from, s.Err)
}

// unreached is what is told where the member's API was not spoken to.
func unreached(cluster string, c handshake.Credentials, from string, err error) inventory.Pushed {
	var request *url.Error
	if errors.As(err, &request) { // which path was asked for first is nothing to people
		err = request.Err
	}
	var shown *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case errors.As(err, &shown):
		return inventory.Pushed{Reason: ReasonNotVerified, Message: from + "who answers at " + c.Server + " is not known by the CA that the hub was given as the member's, so the hub shows no token there: " +
			shown.Err.Error() + ". Either the member has another CA or address now, and the hub needs those: " + joinAgain(cluster) + "; or somebody else answers there. What runs in the member goes on running"}
	case errors.As(err, &name):
		return inventory.Pushed{Reason: ReasonUnreachable, Message: from + "the hub's machine does not find the host of " + c.Server + ": " + name.Error() +
			". Where the hub reaches the member by another address: " + joinAgain(cluster) + " --member-server URL. What runs in the member goes on running"}
	}
	return inventory.Pushed{Reason: ReasonUnreachable, Message: from + err.Error() + ". Is the member's API up, and does the hub reach " + c.Server + "? What runs in the member goes on running"}
}

// warnMost is how long before its end people are told of a token that ends, at most: a
// quarter of its life, where that is less and known.
const warnMost = 21 * 24 * time.Hour

// warnFrom is when people are told that a token ends; zero: it does not.
func warnFrom(c handshake.Credentials) time.Time {
	issued, ends := c.TokenEnds()
	if ends.IsZero() {
		return ends
	}
	before := warnMost
	if !issued.IsZero() {
		before = min(before, ends.Sub(issued)/4)
	}
	return ends.Add(-before)
}
