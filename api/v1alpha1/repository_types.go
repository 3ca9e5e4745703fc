package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Repository is where content is, and how the hub gets it. The hub checks a Repository once per interval,
// however many Sources use it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=repo,path=repositories,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec['git','helm','oci'].url`
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Repository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RepositorySpec   `json:"spec"`
	Status RepositoryStatus `json:"status,omitempty"`
}

// RepositorySpec is what people state of a Repository.
//
// +kubebuilder:validation:XValidation:rule="[has(self.git), has(self.helm), has(self.oci)].filter(x, x).size() == 1",message="give one of git, helm and oci"
type RepositorySpec struct {
	// Git is a git repository over HTTPS, SSH or HTTP.
	// +optional
	Git *GitRepository `json:"git,omitempty"`
	// Helm is a repository of Helm charts: an index over HTTPS or HTTP, or charts in an OCI registry.
	// +optional
	Helm *HelmRepository `json:"helm,omitempty"`
	// OCI is a repository of an OCI registry with artifacts of files, as Flux and ORAS push them.
	// +optional
	OCI *OCIRepository `json:"oci,omitempty"`
	// Verify states what must be signed, and by which keys. Nothing without such a signature is rendered or applied.
	// Default: no signature is verified.
	// +optional
	Verify *RepositoryVerification `json:"verify,omitempty"`
	// Interval between two checks, from 30s to 24h. The hub spreads the checks by up to a tenth of it.
	// Default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s') && duration(self) <= duration('24h')",message="interval must be a duration from 30s to 24h, such as 5m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Webhook lets the git server request a check as soon as a commit is pushed, by a POST to
	// https://HUB/webhooks/NAMESPACE/NAME. Default: the hub checks at each interval alone.
	// +optional
	Webhook *RepositoryWebhook `json:"webhook,omitempty"`
	// CommitStatus lets the hub report the state of each Source to the git server, as a status of its commit.
	// Default: nothing is reported. Only git repositories have it.
	// +optional
	CommitStatus *RepositoryCommitStatus `json:"commitStatus,omitempty"`
	// Suspend stops the checks. Nothing that runs is removed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// RepositoryCommitStatus is how the states of Sources are reported to a git server.
type RepositoryCommitStatus struct {
	// Server is the kind of the git server: GitHub, GitLab, or Gitea, which Forgejo is, too.
	Server GitServer `json:"server"`
	// SecretRef names a Secret of the namespace with the key token, which may write statuses of commits. The hub sends the token to
	// the host of the API alone. The writer needs the right to get the Secret.
	SecretRef RepositorySecretRef `json:"secretRef"`
	// URL of the server's API: https://HOST/PATH. Default: that of the host of the repository, such as https://api.github.com or
	// https://HOST/api/v4.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://`
	URL string `json:"url,omitempty"`
}

// GitServer is a kind of git servers.
// +kubebuilder:validation:Enum=GitHub;GitLab;Gitea
type GitServer string

// The kinds of git servers that take statuses of commits.
const (
	GitServerGitHub GitServer = "GitHub"
	GitServerGitLab GitServer = "GitLab"
	GitServerGitea  GitServer = "Gitea"
)

// RepositoryVerification is what must be signed, and by which keys.
type RepositoryVerification struct {
	// Mode is what must be signed. For git it is Commit, Tag, or TagAndCommit: the commit, the annotated tag that the Source reads, or
	// both. For an oci:// URL it is Artifact: cosign must have signed the manifest by a key. For charts it is also Provenance: the
	// chart must have a provenance file of Helm.
	Mode VerificationMode `json:"mode"`
	// SecretRef names a Secret of the namespace with the trusted keys. Each key of the Secret has armored public keys of OpenPGP,
	// lines of SSH keys as in allowed_signers or authorized_keys, or public keys in PEM as cosign.pub. SSH keys are for git, keys in
	// PEM for Artifact, and OpenPGP keys for git and Provenance. The writer needs the right to get the Secret.
	SecretRef RepositorySecretRef `json:"secretRef"`
}

// VerificationMode is what must be signed.
//
// +kubebuilder:validation:Enum=Commit;Tag;TagAndCommit;Artifact;Provenance
type VerificationMode string

// The modes of a verification.
const (
	VerifyCommit       VerificationMode = "Commit"
	VerifyTag          VerificationMode = "Tag"
	VerifyTagAndCommit VerificationMode = "TagAndCommit"
	VerifyArtifact     VerificationMode = "Artifact"
	VerifyProvenance   VerificationMode = "Provenance"
)

// RepositoryWebhook is how requests of a git server are verified.
type RepositoryWebhook struct {
	// SecretRef names a Secret of the namespace with the key token, of at least 16 bytes. The git server has the same
	// token. It signs its requests with the token, or sends it. The writer needs the right to get the Secret.
	SecretRef RepositorySecretRef `json:"secretRef"`
}

// DefaultRepositoryInterval is the time between two checks of a Repository without interval.
const DefaultRepositoryInterval = 5 * time.Minute

// GitRepository is a git repository.
type GitRepository struct {
	// URL of the repository, without a password: https://HOST/PATH, http://HOST/PATH or ssh://USER@HOST:PORT/PATH. Without a user
	// and a port, those of ssh are git and 22.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// SecretRef names a Secret of the namespace with the keys username and password, or with the key token.
	// For ssh it is required, and has the keys identity, a private key, and known_hosts; password decrypts an encrypted key.
	// The hub uses them for the host of the URL alone. The writer needs the right to get the Secret.
	// +optional
	SecretRef *RepositorySecretRef `json:"secretRef,omitempty"`
	// CABundle is PEM certificates of the CAs that the server's certificate is verified by. Default: those
	// of the hub's system. It is not for ssh.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
}

// HelmRepository is a repository of Helm charts.
type HelmRepository struct {
	// URL of the repository, without credentials: https://HOST/PATH or http://HOST/PATH of a directory with an index.yaml,
	// or oci://HOST/PATH of a registry that has each chart below the path.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// SecretRef names a Secret of the namespace with the keys username and password, or with the key token.
	// The hub sends them to the host of the URL, and to the token host of a registry, alone. The writer needs the right to get the
	// Secret.
	// +optional
	SecretRef *RepositorySecretRef `json:"secretRef,omitempty"`
	// TokenHost is the host, as HOST or HOST:PORT, from which the registry has its tokens, where that is another one than its own. The
	// hub sends the credentials of secretRef there over TLS, for a token that reads the repositories of the URL.
	// Default: auth.docker.io for docker.io, gitlab.com for registry.gitlab.com, and none for others.
	// +optional
	// +kubebuilder:validation:MaxLength=261
	TokenHost string `json:"tokenHost,omitempty"`
	// CABundle is PEM certificates of the CAs that the server's certificate is verified by. Default: those
	// of the hub's system. Other hosts with archives of charts are verified by both.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
}

// OCIRepository is a repository of an OCI registry.
type OCIRepository struct {
	// URL of the repository: oci://HOST/PATH, without credentials and a tag. The registry needs TLS.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// SecretRef names a Secret of the namespace with the keys username and password, or with the key token.
	// The hub sends them to the host of the URL, and to the token host of a registry, alone. The writer needs the right to get the
	// Secret.
	// +optional
	SecretRef *RepositorySecretRef `json:"secretRef,omitempty"`
	// TokenHost is the host, as HOST or HOST:PORT, from which the registry has its tokens, where that is another one than its own. The
	// hub sends the credentials of secretRef there over TLS, for a token that reads the repositories of the URL.
	// Default: auth.docker.io for docker.io, gitlab.com for registry.gitlab.com, and none for others.
	// +optional
	// +kubebuilder:validation:MaxLength=261
	TokenHost string `json:"tokenHost,omitempty"`
	// CABundle is PEM certificates of the CAs that the server's certificate is verified by. Default: those
	// of the hub's system. Other hosts to which the registry redirects are verified by both.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
}

// RepositorySecretRef names a Secret of the Repository's namespace.
type RepositorySecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Condition types of a Repository.
const (
	// RepositoryReachable is false while the last check failed.
	RepositoryReachable = "Reachable"
	// RepositoryWebhookReady is false while no request of a git server can be verified. It is there while the Repository
	// states a webhook.
	RepositoryWebhookReady = "WebhookReady"
)

// RepositoryStatus is the observed state of a Repository.
type RepositoryStatus struct {
	// ObservedGeneration of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Refs that Sources use, with the commit, or the version of a chart, that the hub read last.
	// +optional
	// +listType=map
	// +listMapKey=ref
	Refs []RepositoryRef `json:"refs,omitempty"`
	// TrustedKeysDigest is a digest of spec.verify and its trusted keys, by which the refs were considered.
	// +optional
	TrustedKeysDigest string `json:"trustedKeysDigest,omitempty"`
	// WebhookTime is when the last request of a git server was accepted. The hub writes it about once in a second at
	// most, and then checks the Repository.
	// +optional
	WebhookTime *metav1.MicroTime `json:"webhookTime,omitempty"`
	// Conditions: Reachable, and WebhookReady where a webhook is stated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RepositoryRef is a ref and its commit.
type RepositoryRef struct {
	// Ref such as refs/heads/main, shop@1.x for a chart, or tag@latest for an artifact.
	Ref string `json:"ref"`
	// Commit that every Source of the ref has considered. For a chart it is CHART:VERSION@DIGEST, and for an artifact TAG@DIGEST.
	Commit string `json:"commit"`
}

// RepositoryList is a list of Repositories.
//
// +kubebuilder:object:root=true
type RepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Repository `json:"items"`
}
