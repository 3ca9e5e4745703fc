package standing

import (
	"crypto/x509"
	"testing"
	"time"

	"atoll.dev/atoll/internal/trust"
)

var testTime = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// The text on a hub's CAs says which rotation is under way, what the hub shows, and how far agents are.
func TestTextsAboutCAs(t *testing.T) {
	since := testTime.Add(-time.Hour)
	const (
		still   = "The hub's CAs are not being rotated.\n"
		rotates = "The hub's CAs are being rotated since 2026-01-02T11:00:00Z; both the former and the new ones count.\n"
		table   = "\nCERTIFICATE  ENDS\n"
	)
	for name, c := range map[string]struct {
		status CAStatus
		want   string
	}{
		"new": {CAStatus{Generation: 1, CAHash: "sha256:a", Agents: AgentCertificateCounts{Current: 3, Soonest: &testTime}},
			still + "\ngeneration  1\nCA hash     sha256:a\n" + table + "\nagents with certificates of the present CA  3\nthe first of them ends at 2026-01-02T12:00:00Z\n"},
		"of two CAs": {CAStatus{Generation: 2, CAHash: "sha256:b", FormerHashes: []string{"sha256:a"}, Certificates: []Certificate{{Name: "agent CA", Ends: testTime}}, FormerUsers: []FormerUser{{"jane", since}}, Warnings: []string{"look"}},
			still + "\ngeneration  2\nCA hash     sha256:b\nformerly    sha256:a, by which agents still find the hub\n" + table + "agent CA     2026-01-02T12:00:00Z\n" +
				"\nuser jane came by a client certificate of the former CA, at 2026-01-02T11:00:00Z last, and needs a new one\n\nagents with certificates of the present CA  0\nWARNING: look\n"},
		"it begins": {CAStatus{RotatingSince: &since, Agents: AgentCertificateCounts{Former: 2, FormerClusters: []string{"oslo"}, Away: 1}},
			rotates + "\ngeneration  0\nCA hash     \n" + table + "\nagents with certificates of the present CA  0\nin touch, and not yet                        2: oslo, …\naway, and not yet                            1; they come back by their key\n" +
				"\nWait until all that are in touch have new certificates, then: atoll ca finish\n"},
		"it may end": {CAStatus{RotatingSince: &since, Agents: AgentCertificateCounts{Current: 4}},
			rotates + "\ngeneration  0\nCA hash     \n" + table + "\nagents with certificates of the present CA  4\nin touch, and not yet                        0\naway, and not yet                            0; they come back by their key\n" +
				"\nAll connected agents have new certificates. When all copies of hub.kubeconfig are replaced too: atoll ca finish\n"},
		"some fail": {CAStatus{Agents: AgentCertificateCounts{Overdue: 1, OverdueClusters: []string{"oslo"}}},
			still + "\ngeneration  0\nCA hash     \n" + table + "\nagents with certificates of the present CA  0\nthat fail to renew                           1: oslo\n"},
	} {
		if got := c.status.FormatText(false); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// The warnings about a certificate begin at their time, and say what is to be done.
func TestWarningsBeginAtTheirTime(t *testing.T) {
	const day = 24 * time.Hour
	own := func(left time.Duration) Certificate {
		return Certificate{Name: "API", Own: true, Ends: testTime.Add(left), Issued: testTime.Add(left - 400*day)}
	}
	given := func(left, life time.Duration) Certificate {
		return Certificate{Name: "API", Ends: testTime.Add(left), Issued: testTime.Add(left - life)}
	}
	ca := func(left time.Duration) Certificate {
		return Certificate{Name: "agent CA", Ends: testTime.Add(left), Issued: testTime.Add(-9000 * day)}
	}
	for name, c := range map[string]struct {
		of   Certificate
		want string
	}{
		"it ends now":                {own(0), "API has ended at 2026-01-02T12:00:00Z"},
		"a CA of a year":             {ca(365 * day), ""},
		"a CA of less":               {ca(365*day - time.Second), "agent CA ends at 2027-01-02T11:59:59Z: rotate it, by atoll ca rotate"},
		"a quarter of its life":      {own(100 * day), ""},
		"less than a quarter":        {own(100*day - time.Second), "API ends at 2026-04-12T11:59:59Z and the hub has not renewed it; the hub's log has the reason"},
		"of others, three weeks":     {given(21*day, 365*day), ""},
		"of others, less":            {given(21*day-time.Second, 365*day), "API, which the hub was given by a flag, ends at 2026-01-23T11:59:59Z: replace the files, and the hub takes them up without a restart"},
		"of others, short, quarter":  {given(10*day, 40*day), ""},
		"of others, short, less":     {given(10*day-time.Second, 40*day), "API, which the hub was given by a flag, ends at 2026-01-12T11:59:59Z: replace the files, and the hub takes them up without a restart"},
		"the hub's own, three weeks": {own(150 * day), ""},
	} {
		if got := c.of.WarningText(testTime); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The form of a certificate has the times of its issue and of its end.
func TestTheFormOfACertificate(t *testing.T) {
	c := &x509.Certificate{NotBefore: testTime.Add(-trust.Backdated), NotAfter: testTime.Add(time.Hour)}
	if got, want := NewCertificate("API", c, true), (Certificate{Name: "API", Ends: testTime.Add(time.Hour), Issued: testTime, Own: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
