// Package standing is what a hub reports about its CAs, of its own certificates and of those of
// its agents, as its API answers and as people read it.
//
// Contract: values and their text, no more. The forms are JSON between a hub and a CLI,
// which may be of different versions: fields are added, never changed.
package standing

import (
	"crypto/x509"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/internal/trust"

	"atoll.dev/atoll/internal/phrase"
)

const (
	// Path answers GET with a Standing, and POST, with the parameter action (ActionRotate or
	// ActionFinish, this one with force=true too), with the Standing after it.
	Path = "/atoll/v1alpha1/ca"
	// CertificatesPath answers GET with Certificates.
	CertificatesPath = "/atoll/v1alpha1/certificates"

	ActionRotate = "rotate"
	ActionFinish = "finish"
)

// CAStatus is the state of a hub's CA.
type CAStatus struct {
	// Generation of the CAs: 1 for those that the hub was made with.
	Generation int `json:"generation"`
	// RotatingSince is when the rotation that is under way began.
	RotatingSince *time.Time `json:"rotatingSince,omitempty"`
	// CAHash is what agents that join pin from now on; FormerHashes are older ones by which
	// the hub is still found.
	CAHash       string   `json:"caHash"`
	FormerHashes []string `json:"formerHashes,omitempty"`
	// Certificates of the hub: its CAs and what it shows.
	Certificates []Certificate          `json:"certificates"`
	Agents       AgentCertificateCounts `json:"agents"`
	// FormerUsers have sent requests to the hub that answers by client certificates of the former CA
	// since the rotation began, which end with it.
	FormerUsers []FormerUser `json:"formerUsers,omitempty"`
	// Warnings in words.
	Warnings []string `json:"warnings,omitempty"`
}

// Certificate of the hub.
type Certificate struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends"`
	// Issued, where that has a meaning: of what the hub renews by itself, when it did so.
	Issued time.Time `json:"issued"`
	// Own is what the hub renews by itself, before a quarter of its life is left.
	Own bool `json:"own,omitempty"`
}

// NewCertificate returns the form of a certificate. own is true if the hub renews it by itself.
func NewCertificate(name string, c *x509.Certificate, own bool) Certificate {
	return Certificate{Name: name, Ends: c.NotAfter, Issued: trust.IssuedAt(c), Own: own}
}

// FormerUser of a client certificate of the former CA.
type FormerUser struct {
	Name string `json:"name"`
	// Last is the time of the user's last request.
	Last time.Time `json:"last"`
}

// AgentCertificateCounts counts agents by what they are known to hold.
type AgentCertificateCounts struct {
	// Current hold a certificate of the present CA.
	Current int `json:"current"`
	// Former are in touch and are not known to; FormerClusters names the first of them.
	Former         int      `json:"former"`
	FormerClusters []string `json:"formerClusters,omitempty"`
	// Away are not in touch, and not known to hold one of the present CA.
	Away int `json:"away"`
	// Overdue are in touch and have not renewed their certificate though it was time;
	// OverdueClusters names the first of them.
	Overdue         int      `json:"overdue"`
	OverdueClusters []string `json:"overdueClusters,omitempty"`
	// Soonest is when the first of the known certificates ends.
	Soonest *time.Time `json:"soonest,omitempty"`
}

// Certificates of agents: when they end, by Cluster, of those that the hubs have read since they
// were started; and how their connections come.
type Certificates struct {
	Ends map[string]time.Time `json:"ends"`
	// Carriage is how agents' present connections come, by Cluster: TLS, WebSocket, or Push
	// of those that the hub runs; CheckIn of those that hold none and are to check in. A
	// Cluster whose agent is away is not in it.
	Carriage map[string]string `json:"carriage,omitempty"`
}

// warnBefore is the part of a certificate's life that may be left without a warning.
const warnBefore = 4

// authorityWarn is how long before its end a CA is to be rotated.
const authorityWarn = 365 * 24 * time.Hour

// othersWarn is how long before its end a certificate is to be replaced that others renew, at
// most: a quarter of its life, where that is less.
const othersWarn = 21 * 24 * time.Hour

// WarningText is the warning about the certificate, empty where there is none. CAs are named.
func (c Certificate) WarningText(now time.Time) string {
	left := c.Ends.Sub(now)
	switch {
	case left <= 0:
		return fmt.Sprintf("%s has ended at %s", c.Name, phrase.FormatTime(c.Ends))
	case c.isCA() && left < authorityWarn:
		return fmt.Sprintf("%s ends at %s: rotate it, by atoll ca rotate", c.Name, phrase.FormatTime(c.Ends))
	case c.isCA():
		return ""
	case c.Own && left < c.Ends.Sub(c.Issued)/warnBefore:
		return fmt.Sprintf("%s ends at %s and the hub has not renewed it; the hub's log has the reason", c.Name, phrase.FormatTime(c.Ends))
	case !c.Own && left < min(othersWarn, c.Ends.Sub(c.Issued)/warnBefore):
		return fmt.Sprintf("%s, which the hub was given by a flag, ends at %s: replace the files, and the hub takes them up without a restart", c.Name, phrase.FormatTime(c.Ends))
	}
	return ""
}

func (c Certificate) isCA() bool { return strings.HasSuffix(c.Name, " CA") }

// FormatText formats it for people.
func (s CAStatus) FormatText(bool) string {
	var b strings.Builder
	if s.RotatingSince != nil {
		fmt.Fprintf(&b, "The hub's CAs are being rotated since %s; both the former and the new ones count.\n", phrase.FormatTime(*s.RotatingSince))
	} else {
		fmt.Fprintln(&b, "The hub's CAs are not being rotated.")
	}
	fmt.Fprintf(&b, "\ngeneration  %d\nCA hash     %s\n", s.Generation, s.CAHash)
	for _, h := range s.FormerHashes {
		fmt.Fprintf(&b, "formerly    %s, by which agents still find the hub\n", h)
	}
	fmt.Fprintln(&b)
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CERTIFICATE\tENDS")
	for _, c := range s.Certificates {
		fmt.Fprintf(w, "%s\t%s\n", c.Name, phrase.FormatTime(c.Ends))
	}
	_ = w.Flush() // into memory
	for _, u := range s.FormerUsers {
		fmt.Fprintf(&b, "\nuser %s came by a client certificate of the former CA, at %s last, and needs a new one", u.Name, phrase.FormatTime(u.Last))
	}
	if len(s.FormerUsers) > 0 {
		fmt.Fprintln(&b)
	}
	s.Agents.writeText(&b, s.RotatingSince != nil)
	for _, warning := range s.Warnings {
		fmt.Fprintf(&b, "WARNING: %s\n", warning)
	}
	return b.String()
}

func (a AgentCertificateCounts) writeText(b io.Writer, rotating bool) {
	fmt.Fprintf(b, "\nagents with certificates of the present CA  %d\n", a.Current)
	if rotating || a.Former > 0 {
		fmt.Fprintf(b, "in touch, and not yet                        %d%s\n", a.Former, exampleNames(a.FormerClusters, a.Former))
		fmt.Fprintf(b, "away, and not yet                            %d; they come back by their key\n", a.Away)
	}
	if a.Overdue > 0 {
		fmt.Fprintf(b, "that fail to renew                           %d%s\n", a.Overdue, exampleNames(a.OverdueClusters, a.Overdue))
	}
	if a.Soonest != nil {
		fmt.Fprintf(b, "the first of them ends at %s\n", phrase.FormatTime(*a.Soonest))
	}
	switch {
	case rotating && a.Former == 0:
		fmt.Fprintln(b, "\nAll connected agents have new certificates. When all copies of hub.kubeconfig are replaced too: atoll ca finish")
	case rotating:
		fmt.Fprintln(b, "\nWait until all that are in touch have new certificates, then: atoll ca finish")
	}
}

// exampleNames returns some names of clusters of which there are n.
func exampleNames(names []string, n int) string {
	if len(names) == 0 {
		return ""
	}
	out := ": " + strings.Join(names, ", ")
	if n > len(names) {
		out += ", …"
	}
	return out
}
