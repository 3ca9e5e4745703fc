// The parts of Kubernetes' own types that the console reads.

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
}

export interface Status {
  kind: "Status";
  code?: number;
  reason?: string;
  message?: string;
  details?: { retryAfterSeconds?: number };
}

export interface List<T> {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[] | null;
}

export interface Pod extends KubeObject {
  spec?: { nodeName?: string; containers?: { name: string; image?: string }[]; initContainers?: { name: string; image?: string }[]; ephemeralContainers?: { name: string }[] };
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    conditions?: Condition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
    ephemeralContainerStatuses?: ContainerStatus[];
  };
}

export interface ContainerStatus {
  name: string;
  ready: boolean;
  restartCount: number;
  containerID?: string;
  state?: { running?: object; waiting?: { reason?: string; message?: string }; terminated?: { reason?: string; exitCode?: number } };
}

export interface Workload extends KubeObject {
  spec?: { replicas?: number; completions?: number };
  status?: { replicas?: number; readyReplicas?: number; succeeded?: number; failed?: number; active?: number };
}

export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  involvedObject?: { kind?: string; name?: string; namespace?: string };
}

export interface CertificateRequest extends KubeObject {
  spec: { signerName: string; request?: string };
  status?: { conditions?: { type: string; status?: string; reason?: string; message?: string }[] };
}

export interface APIResource {
  name: string;
  kind: string;
  namespaced: boolean;
}

/** A right by the words of the API. */
export interface Right {
  verb: string;
  group: string;
  resource: string;
  subresource?: string;
  namespace?: string;
  name?: string;
}
