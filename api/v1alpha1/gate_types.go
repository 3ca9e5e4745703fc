package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PrometheusGate measures by a query. It holds after count successes in a row. No data is no success: a query without exactly
// one finite number, an error, and a server that does not answer restart the count of successes at zero.
type PrometheusGate struct {
	// Server is the URL of the server, or of a prefix of its API: https://HOST:PORT/PREFIX, or http.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+[^?#@\s]*$`
	Server string `json:"server"`
	// SecretRef names a Secret with username and password, or token, and optionally ca.crt. Credentials need https.
	// +optional
	SecretRef *GateSecretRef `json:"secretRef,omitempty"`
	// Query in PromQL. Its result is one number: a scalar, or a vector of one series.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Query string `json:"query"`
	// SuccessCondition is a CEL expression over result, which is a double, such as result < 0.01.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	SuccessCondition string `json:"successCondition"`
	// Interval between two measurements, from 10s to 1h. Default 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="interval must be a duration from 10s to 1h, such as 1m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Count is how many measurements in a row must be a success. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Count int32 `json:"count,omitempty"`
	// FailureLimit is how many measurements may fail. One more fails the gate, and onFailure of its stage follows. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailureLimit int32 `json:"failureLimit,omitempty"`
}

// WebhookGate sends a POST to a service. The request is signed as Standard Webhooks specify. The service answers with status
// 200 and {"verdict": "Pass"}, "Wait" or "Fail", with an optional message. All other answers count as Wait.
type WebhookGate struct {
	// URL of the service: https or http.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+[^#@\s]*$`
	URL string `json:"url"`
	// SecretRef names a Secret with the key hmac, of at least 16 bytes, by which requests are signed, and optionally ca.crt.
	SecretRef GateSecretRef `json:"secretRef"`
	// Interval between two requests while the service answers with Wait, from 10s to 1h. Default 30s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="interval must be a duration from 10s to 1h, such as 30s"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Timeout of a request, from 1s to 30s. Default 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('30s')",message="timeout must be a duration from 1s to 30s, such as 10s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// GateSecretRef names a Secret that the hub reads for a gate.
type GateSecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the Secret. A ClusterPropagationPolicy states it. A PropagationPolicy reads Secrets of its own namespace
	// alone, and states none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// The default times of gates that measure.
const (
	defaultQueryInterval   = time.Minute
	defaultWebhookInterval = 30 * time.Second
	defaultWebhookTimeout  = 10 * time.Second
)

// GetInterval returns the time between two measurements.
func (g *PrometheusGate) GetInterval() time.Duration {
	return chooseDuration(g.Interval, defaultQueryInterval)
}

// NeededSuccesses returns how many measurements in a row must be a success.
func (g *PrometheusGate) NeededSuccesses() int { return max(1, int(g.Count)) }

// GetInterval returns the time between two requests.
func (g *WebhookGate) GetInterval() time.Duration {
	return chooseDuration(g.Interval, defaultWebhookInterval)
}

// GetTimeout returns the time within which a request must be answered.
func (g *WebhookGate) GetTimeout() time.Duration {
	return chooseDuration(g.Timeout, defaultWebhookTimeout)
}

func chooseDuration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// SecretOf returns the Secret that a gate names; nil: it names none.
func (g *RolloutGate) SecretOf() *GateSecretRef {
	switch {
	case g.Prometheus != nil:
		return g.Prometheus.SecretRef
	case g.Webhook != nil:
		return &g.Webhook.SecretRef
	}
	return nil
}

// FindGate returns a gate of a stage by its name; nil: there is none.
func (r *Rollout) FindGate(stage, name string) *RolloutGate {
	if r == nil {
		return nil
	}
	for _, s := range r.ListStages() {
		if s.Name != stage {
			continue
		}
		for _, gates := range [...][]RolloutGate{s.GatesBefore, s.GatesAfter} {
			for i := range gates {
				if gates[i].Name == name {
					return &gates[i]
				}
			}
		}
	}
	return nil
}
