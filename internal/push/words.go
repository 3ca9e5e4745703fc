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

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/trust/handshake"
)

// rejoinCommandText is what gives a cluster new credentials.
func rejoinCommandText(cluster string) string {
	return fmt.Sprintf("atoll join %s --push --kubeconfig MEMBER", cluster)
}

func missingCredentials(cluster string) clusterstatus.Pushed {
	return clusterstatus.Pushed{Reason: atoll.ReasonCredentialsMissing, Message: "the hub has no credentials of the member; a user with a kubeconfig of both runs: " + rejoinCommandText(cluster)}
}

func malformedCredentials(secret string, err error) clusterstatus.Pushed {
	return clusterstatus.Pushed{Reason: atoll.ReasonCredentialsMalformed, Message: fmt.Sprintf("Secret atoll-system/%s on the hub: %v", secret, err)}
}

func unusedCredentials(cluster string) clusterstatus.Pushed {
	return clusterstatus.Pushed{Reason: atoll.ReasonCredentialsNotUsed, Message: fmt.Sprintf(
		"the hub keeps credentials of the member that it does not use, for when mode becomes Push again; to drop them on the hub, and in the member to withdraw them, at either: kubectl delete secret -n atoll-system -l %s=%s", handshake.LabelPush, cluster)}
}

// agentFailed is the report for an agent that ended without an order.
func agentFailed(err error) clusterstatus.Pushed {
	var p *crash.Panic
	if errors.As(err, &p) {
		return clusterstatus.Pushed{Reason: atoll.ReasonAgentFailed, Message: fmt.Sprintf(
			"the agent that the hub runs ended by a defect of its own, %v, and is started again; the log of the hub that runs it has the stack: please report it. What runs in the member goes on running", p)}
	}
	return clusterstatus.Pushed{Reason: atoll.ReasonAgentFailed, Message: fmt.Sprintf("the agent that the hub runs ended, and is started again: %v", err)}
}

// stageCondition is the report for a stage of the agent that began then.
func stageCondition(cluster string, c handshake.Credentials, s agent.Stage, since time.Time) clusterstatus.Pushed {
	host, _, _ := strings.Cut(s.Holder, "_")
	from := "since " + phrase.FormatTime(since) + ": "
	_, ends := c.TokenEnds()
	switch due := tokenWarningTime(c); {
	case s.Works && !due.IsZero() && !since.Before(due):
		return clusterstatus.Pushed{OK: true, Reason: atoll.ReasonCredentialsExpiring, Message: "the hub's token for the member's API ends at " + phrase.FormatTime(ends) + ". For another: " + rejoinCommandText(cluster)}
	case s.Works:
		return clusterstatus.Pushed{OK: true, Reason: atoll.ReasonAgentWorks}
	case s.Holder != "":
		return clusterstatus.Pushed{OK: true, Reason: atoll.ReasonStandsBy, Message: "another agent works on the member, on host " + host + "; the hub's takes over when that one ends"}
	case apierrors.IsUnauthorized(s.Err):
		return clusterstatus.Pushed{Reason: atoll.ReasonCredentialsRefused, Message: from + "the member's API at " + c.Server + " does not take the hub's token: it has ended, was withdrawn there, or belongs to another cluster. For a new one: " + rejoinCommandText(cluster)}
	case apierrors.IsForbidden(s.Err):
		return clusterstatus.Pushed{Reason: atoll.ReasonNotAllowedInMember, Message: from + s.Err.Error() + ". The ClusterRole atoll-agent in the member defines what the agent may do"}
	}
	return memberUnreachable(cluster, c, from, s.Err)
}

// memberUnreachable is the report where the member's API was not reached.
func memberUnreachable(cluster string, c handshake.Credentials, from string, err error) clusterstatus.Pushed {
	var request *url.Error
	if errors.As(err, &request) { // the path of the first request does not help people
		err = request.Err
	}
	var shown *tls.CertificateVerificationError
	var name *net.DNSError
	var refused *addressguard.RefusedAddressError
	switch {
	case errors.As(err, &refused):
		return clusterstatus.Pushed{Reason: atoll.ReasonAddressRefused, Message: from + refused.Error() + ", which the server " + c.Server +
			", or its proxy-url, stands for. Give an address of the member: " + rejoinCommandText(cluster) + " --member-server URL; or the hub's operator allows the address with --push-allowed-cidrs. What runs in the member goes on running"}
	case errors.As(err, &shown):
		return clusterstatus.Pushed{Reason: atoll.ReasonMemberNotVerified, Message: from + "the server at " + c.Server + " is not known by the CA that the hub was given as the member's, so the hub shows no token there: " +
			shown.Err.Error() + ". Either the member has another CA or address now, and the hub needs those: " + rejoinCommandText(cluster) + "; or another server answers there. What runs in the member goes on running"}
	case errors.As(err, &name):
		return clusterstatus.Pushed{Reason: atoll.ReasonMemberUnreachable, Message: from + "the hub's machine does not find the host of " + c.Server + ": " + name.Error() +
			". Where the hub reaches the member by another address: " + rejoinCommandText(cluster) + " --member-server URL. What runs in the member goes on running"}
	}
	return clusterstatus.Pushed{Reason: atoll.ReasonMemberUnreachable, Message: from + err.Error() + ". Is the member's API up, and does the hub reach " + c.Server + "? What runs in the member goes on running"}
}

// warnMost is the longest time before the end of a token at which people are warned: a quarter of
// its life, where that is less and known.
const warnMost = 21 * 24 * time.Hour

// tokenWarningTime is the time of the warning about a token's end; zero: it does not end.
func tokenWarningTime(c handshake.Credentials) time.Time {
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
