package server

import "testing"

// TestAProxyIsAskedForAPort: as of any pod.
func TestAProxyIsAskedForAPort(t *testing.T) {
	for asked, want := range map[string][2]string{
		"web-1.oslo":            {"web-1.oslo", "web-1"},
		"web-1.oslo:8080":       {"web-1.oslo", "web-1:8080"},
		"https:web-1.oslo:8443": {"web-1.oslo", "https:web-1:8443"},
		"https:web-1.oslo:":     {"web-1.oslo", "https:web-1:"},
		"gopher:web-1.oslo:70":  {"gopher:web-1.oslo:70", "web-1"}, // which no pod is called
	} {
		if pod, as := splitProxyPodName(asked); pod != want[0] || as("web-1") != want[1] {
			t.Errorf("%s is %s, and %s there; want %v", asked, pod, as("web-1"), want)
		}
	}
}
