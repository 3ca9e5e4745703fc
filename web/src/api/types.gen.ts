// Generated from api/crds by `npm run types`. Do not edit.

import type { ObjectMeta } from "./kubernetes";

export interface Cluster {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    accepted?: boolean;
    capacity?: {
      objects?: number;
      replicas?: number;
      resources?: Record<string, number | string>;
    };
    connection?: {
      interval?: string;
      type?: "Stream" | "CheckIn";
    };
    mode?: "Pull" | "Push";
    provider?: string;
    region?: string;
    removal?: {
      confirm?: string;
      force?: boolean;
      mode: "Orphan" | "Clean";
    };
    reportedRoom?: "Use" | "Ignore";
    taints?: Array<{
      effect: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
      key: string;
      timeAdded?: string;
      value?: string;
    }>;
    timeZone?: string;
    zone?: string;
    zones?: Array<string>;
  };
  status?: {
    agentVersion?: string;
    apisHash?: string;
    conditions?: Array<{
      lastTransitionTime: string;
      message: string;
      observedGeneration?: number;
      reason: string;
      status: "True" | "False" | "Unknown";
      type: string;
    }>;
    drain?: {
      bundles: number;
      cannotLeave: number;
      left: number;
      since: string;
      stays: number;
      waiting: number;
    };
    kubernetesVersion?: string;
    nodes?: {
      ready: number;
      summary?: string;
      total: number;
    };
    properties?: Array<{
      name: string;
      value: string;
    }>;
    removal?: {
      agentWaitsFor?: string;
      agentWaitsSince?: string;
      bundles: number;
      confirmed?: string;
      gone: number;
      plan?: string;
    };
    resources?: {
      allocatable?: Record<string, number | string>;
      freeCapacity?: {
        nodeClasses?: Array<{
          free?: Record<string, number | string>;
          nodeGroup?: number;
          nodes: number;
          taints?: Array<{
            effect: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
            key: string;
            timeAdded?: string;
            value?: string;
          }>;
        }>;
        nodeGroups?: Array<{
          labels?: Record<string, string>;
          largest?: Record<string, number | string>;
          nodes: number;
          taints?: Array<{
            effect: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
            key: string;
            timeAdded?: string;
            value?: string;
          }>;
        }>;
        unreportedLabels?: Array<string>;
      };
      requested?: Record<string, number | string>;
      room?: {
        classes?: Array<string>;
      };
    };
  };
}

export interface Bundle {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    approvals?: Array<{
      at?: string;
      by?: string;
      revision: string;
      stage: string;
    }>;
    conflictResolution: string;
    dependsOn?: Array<{
      acceptedStates?: Array<"Ready" | "Applied">;
      kind?: "PropagationPolicy" | "ClusterPropagationPolicy";
      name: string;
      scope?: "Cluster" | "All";
    }>;
    disruptionBudget?: {
      maxUnavailable?: number | string;
      minAvailable?: number | string;
      podDisruptionBudgets?: "Honor" | "Ignore";
    };
    failover?: {
      application?: {
        backoffSeconds?: number;
        decisionConditions?: {
          tolerationSeconds?: number;
        };
        gracePeriodSeconds?: number;
        maxAvoidedClusters?: number;
        purgeMode?: "Directly" | "Gracefully" | "Never" | "Immediately" | "Graciously";
      };
    };
    freezeExemption?: {
      at?: string;
      by?: string;
      message: string;
    };
    group?: string;
    moveOrder?: string;
    pause?: {
      by?: string;
      message?: string;
      reason?: string;
      since?: string;
    };
    placement?: {
      apis?: Array<{
        apiVersion: string;
        kind?: string;
      }>;
      celSelector?: string;
      clusterAffinities?: Array<{
        affinityName: string;
        celSelector?: string;
        clusterNames?: Array<string>;
        clusterSets?: Array<string>;
        exclude?: Array<string>;
        fieldSelector?: {
          matchExpressions: Array<{
            key: string;
            operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
            values?: Array<string>;
          }>;
        };
        labelSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      }>;
      clusterAffinity?: {
        clusterNames?: Array<string>;
        exclude?: Array<string>;
        fieldSelector?: {
          matchExpressions: Array<{
            key: string;
            operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
            values?: Array<string>;
          }>;
        };
        labelSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      };
      clusterSets?: Array<string>;
      clusterTolerations?: Array<{
        effect?: string;
        key?: string;
        operator?: string;
        tolerationSeconds?: number;
        value?: string;
      }>;
      decisionGroups?: Array<{
        groupName: string;
        labelSelector: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      }>;
      failback?: {
        holdTime?: string;
        policy?: "Never" | "WhenHealthy";
      };
      maxClusters?: number;
      replicaScheduling?: {
        onShortage?: "PlaceWhatFits" | "PlaceNothing";
        ordinals?: {
          size?: number;
        };
        overflow?: "None" | "Allow";
        replicaDivisionPreference?: "Weighted" | "Aggregated";
        replicaOverrides?: "Forbid" | "Allow";
        replicaSchedulingType?: "Duplicated" | "Divided";
        weightPreference?: {
          dynamicWeight?: "AvailableReplicas";
          staticWeightList?: Array<{
            maxReplicas?: number;
            minReplicas?: number;
            targetCluster: {
              clusterNames?: Array<string>;
              exclude?: Array<string>;
              fieldSelector?: {
                matchExpressions: Array<{
                  key: string;
                  operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
                  values?: Array<string>;
                }>;
              };
              labelSelector?: {
                matchExpressions?: Array<{
                  key: string;
                  operator: string;
                  values?: Array<string>;
                }>;
                matchLabels?: Record<string, string>;
              };
            };
            weight?: number;
          }>;
        };
      };
      rescheduling?: {
        minDwell?: string;
        moveCost?: number;
        when?: "OnEdit" | "WhenBetter";
      };
      scores?: Array<{
        bundles?: {
          labelSelector?: {
            matchExpressions?: Array<{
              key: string;
              operator: string;
              values?: Array<string>;
            }>;
            matchLabels?: Record<string, string>;
          };
          names?: Array<string>;
          within?: "cluster" | "region" | "zone" | "provider";
        };
        clusterAffinity?: {
          clusterNames?: Array<string>;
          exclude?: Array<string>;
          fieldSelector?: {
            matchExpressions: Array<{
              key: string;
              operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
              values?: Array<string>;
            }>;
          };
          labelSelector?: {
            matchExpressions?: Array<{
              key: string;
              operator: string;
              values?: Array<string>;
            }>;
            matchLabels?: Record<string, string>;
          };
        };
        full?: number | string;
        measure?: string;
        name: "Balance" | "Steady" | "ResourceAvailable" | "Property" | "ClusterScore" | "Affinity" | "AntiAffinity" | "ClusterAffinity";
        property?: {
          from: number | string;
          name: string;
          to: number | string;
        };
        resource?: string;
        weight?: number;
      }>;
      spreadConstraints?: Array<{
        maxGroups?: number;
        maxSkew?: number;
        minGroups?: number;
        spreadByField?: "cluster" | "region" | "zone" | "provider";
        spreadByLabel?: string;
        spreadByProperty?: string;
        whenUnsatisfiable?: "DoNotSchedule" | "ScheduleAnyway";
      }>;
      workloadAffinity?: {
        affinity?: {
          groupByLabelKey: string;
        };
        antiAffinity?: {
          groupByLabelKey: string;
        };
      };
    };
    removal: {
      budget?: number | string;
      mode?: "Delete" | "Orphan";
    };
    resume?: {
      at?: string;
      by?: string;
    };
    rollout?: {
      autoStageOptions?: {
        gatesBefore?: Array<{
          approval?: {
            approvers?: number;
            validFor?: string;
          };
          cel?: string;
          name: string;
          prometheus?: {
            count?: number;
            failureLimit?: number;
            interval?: string;
            query: string;
            secretRef?: {
              name: string;
              namespace?: string;
            };
            server: string;
            successCondition: string;
          };
          wait?: string;
          webhook?: {
            interval?: string;
            secretRef: {
              name: string;
              namespace?: string;
            };
            timeout?: string;
            url: string;
          };
        }>;
        maxConcurrency?: number | string;
        maxFailures?: number | string;
        minSuccessTime?: string;
        onFailure?: "Pause" | "Rollback" | "Continue";
        progressDeadline?: string;
      };
      autoStages?: Array<number | string>;
      maxUnavailable?: number | string;
      stages?: Array<{
        clusters: {
          labelSelector?: {
            matchExpressions?: Array<{
              key: string;
              operator: string;
              values?: Array<string>;
            }>;
            matchLabels?: Record<string, string>;
          };
          names?: Array<string>;
        };
        gatesAfter?: Array<{
          approval?: {
            approvers?: number;
            validFor?: string;
          };
          cel?: string;
          name: string;
          prometheus?: {
            count?: number;
            failureLimit?: number;
            interval?: string;
            query: string;
            secretRef?: {
              name: string;
              namespace?: string;
            };
            server: string;
            successCondition: string;
          };
          wait?: string;
          webhook?: {
            interval?: string;
            secretRef: {
              name: string;
              namespace?: string;
            };
            timeout?: string;
            url: string;
          };
        }>;
        gatesBefore?: Array<{
          approval?: {
            approvers?: number;
            validFor?: string;
          };
          cel?: string;
          name: string;
          prometheus?: {
            count?: number;
            failureLimit?: number;
            interval?: string;
            query: string;
            secretRef?: {
              name: string;
              namespace?: string;
            };
            server: string;
            successCondition: string;
          };
          wait?: string;
          webhook?: {
            interval?: string;
            secretRef: {
              name: string;
              namespace?: string;
            };
            timeout?: string;
            url: string;
          };
        }>;
        maxConcurrency?: number | string;
        maxFailures?: number | string;
        minSuccessTime?: string;
        name: string;
        onFailure?: "Pause" | "Rollback" | "Continue";
        progressDeadline?: string;
      }>;
      type?: "All" | "Staged";
      windows?: Array<{
        clusterSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
        duration: string;
        schedule: string;
        timeZone?: string;
        type: "Allow" | "Deny";
        useClusterTimeZone?: boolean;
      }>;
    };
    rolloutStrategy?: {
      enforced?: boolean;
      kind: "RolloutStrategy" | "ClusterRolloutStrategy";
      name: string;
    };
    source: {
      kind: string;
      name: string;
      uid?: string;
    };
    suspension?: {
      dispatching?: boolean;
      dispatchingOnClusters?: {
        clusterNames: Array<string>;
      };
      scheduling?: boolean;
    };
    weightRule?: "Largest";
    whenUnfit: string;
  };
  status?: {
    clusters?: {
      away?: number;
      desired: number;
      ready: number;
      removing?: number;
      summary?: string;
      updated: number;
    };
    conditions?: Array<{
      lastTransitionTime: string;
      message: string;
      observedGeneration?: number;
      reason: string;
      status: "True" | "False" | "Unknown";
      type: string;
    }>;
    failover?: {
      clusters?: Array<{
        avoidedUntil?: string;
        cluster: string;
        clusterUID: string;
        failedAt?: string;
        failovers?: number;
        revision?: string;
        unhealthySince?: string;
      }>;
      clustersBeforeFailover?: Array<string>;
      healthyRevision?: string;
    };
    feedback?: Array<{
      name: string;
      object: string;
      otherClusters?: number;
      problemClusters?: number;
      values?: Array<{
        clusters: number;
        value: string;
      }>;
    }>;
    feedbackSummary?: string;
    items?: number;
    readyReplicas?: number;
    replicas?: number;
    revision?: string;
    rollout?: {
      actor?: string;
      currentStage?: string;
      gates?: Array<{
        hash: string;
        name: string;
        noDataSince?: string;
        revision: string;
        since: string;
        stage: string;
        state: "Waiting" | "Satisfied" | "Passed" | "Failed";
        value?: string;
      }>;
      message?: string;
      pausedBy?: string;
      pausedSince?: string;
      reason?: string;
      rollback?: {
        cluster: string;
        gate?: string;
        message?: string;
        previousRevision?: string;
        reason: string;
        revision: string;
        since: string;
        stage: string;
        state: "RollingBack" | "RolledBack";
      };
      since?: string;
      stageCut?: {
        at: string;
        hash: string;
        revision: string;
        thresholds?: Array<number>;
      };
      stages?: Array<{
        changing: number;
        clusters: number;
        disconnected: number;
        failed: number;
        name: string;
        suspended?: number;
        updated: number;
        waiting: number;
      }>;
    };
    wait?: {
      actor: string;
      cluster?: string;
      reason: string;
      since: string;
    };
    waitsFor?: string;
  };
}

export interface HubSettings {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    childPlacement?: "Parent" | "None";
    clusterProfiles?: "Publish" | "None";
    defaultPlacement?: {
      name?: string;
      type: "None" | "All" | "ClusterSet" | "ClusterPlacement";
    };
    emptyNamespaces?: "Create" | "None";
    failover?: {
      after: string;
      maxLostPercent?: number;
      recoverAfter?: string;
    };
    freeze?: {
      by?: string;
      reason: string;
      since?: string;
      until?: string;
    };
    placementProperties?: Array<string>;
    undoWindow?: string;
  };
  status?: {
    conditions?: Array<{
      lastTransitionTime: string;
      message: string;
      observedGeneration?: number;
      reason: string;
      status: "True" | "False" | "Unknown";
      type: string;
    }>;
  };
}

export interface Repository {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    commitStatus?: {
      secretRef: {
        name: string;
      };
      server: "GitHub" | "GitLab" | "Gitea";
      url?: string;
    };
    git?: {
      caBundle?: string;
      secretRef?: {
        name: string;
      };
      url: string;
    };
    helm?: {
      caBundle?: string;
      secretRef?: {
        name: string;
      };
      tokenHost?: string;
      url: string;
    };
    interval?: string;
    oci?: {
      caBundle?: string;
      secretRef?: {
        name: string;
      };
      tokenHost?: string;
      url: string;
    };
    suspend?: boolean;
    verify?: {
      mode: "Commit" | "Tag" | "TagAndCommit" | "Artifact" | "Provenance";
      secretRef: {
        name: string;
      };
    };
    webhook?: {
      secretRef: {
        name: string;
      };
    };
  };
  status?: {
    conditions?: Array<{
      lastTransitionTime: string;
      message: string;
      observedGeneration?: number;
      reason: string;
      status: "True" | "False" | "Unknown";
      type: string;
    }>;
    observedGeneration?: number;
    refs?: Array<{
      commit: string;
      ref: string;
    }>;
    trustedKeysDigest?: string;
    webhookTime?: string;
  };
}

export interface Source {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    build?: {
      helm?: {
        apiVersions?: Array<string>;
        hooks?: "Run" | "Refuse" | "Omit";
        kubeVersion?: string;
        releaseName?: string;
        values?: Record<string, unknown>;
        valuesFiles?: Array<string>;
        valuesFrom?: Array<{
          key?: string;
          kind: "ConfigMap" | "Secret";
          name: string;
          optional?: boolean;
        }>;
      };
      type?: "Plain" | "Kustomize" | "Helm";
    };
    drift?: {
      allow?: Array<{
        kind?: string;
        managers?: Array<string>;
        name?: string;
        paths?: Array<string>;
      }>;
      mode?: "Report" | "Correct" | "Ignore";
    };
    exclude?: Array<string>;
    force?: boolean;
    paths?: Array<string>;
    placement?: {
      apis?: Array<{
        apiVersion: string;
        kind?: string;
      }>;
      celSelector?: string;
      clusterAffinities?: Array<{
        affinityName: string;
        celSelector?: string;
        clusterNames?: Array<string>;
        clusterSets?: Array<string>;
        exclude?: Array<string>;
        fieldSelector?: {
          matchExpressions: Array<{
            key: string;
            operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
            values?: Array<string>;
          }>;
        };
        labelSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      }>;
      clusterAffinity?: {
        clusterNames?: Array<string>;
        exclude?: Array<string>;
        fieldSelector?: {
          matchExpressions: Array<{
            key: string;
            operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
            values?: Array<string>;
          }>;
        };
        labelSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      };
      clusterSets?: Array<string>;
      clusterTolerations?: Array<{
        effect?: string;
        key?: string;
        operator?: string;
        tolerationSeconds?: number;
        value?: string;
      }>;
      decisionGroups?: Array<{
        groupName: string;
        labelSelector: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      }>;
      failback?: {
        holdTime?: string;
        policy?: "Never" | "WhenHealthy";
      };
      maxClusters?: number;
      replicaScheduling?: {
        onShortage?: "PlaceWhatFits" | "PlaceNothing";
        ordinals?: {
          size?: number;
        };
        overflow?: "None" | "Allow";
        replicaDivisionPreference?: "Weighted" | "Aggregated";
        replicaOverrides?: "Forbid" | "Allow";
        replicaSchedulingType?: "Duplicated" | "Divided";
        weightPreference?: {
          dynamicWeight?: "AvailableReplicas";
          staticWeightList?: Array<{
            maxReplicas?: number;
            minReplicas?: number;
            targetCluster: {
              clusterNames?: Array<string>;
              exclude?: Array<string>;
              fieldSelector?: {
                matchExpressions: Array<{
                  key: string;
                  operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
                  values?: Array<string>;
                }>;
              };
              labelSelector?: {
                matchExpressions?: Array<{
                  key: string;
                  operator: string;
                  values?: Array<string>;
                }>;
                matchLabels?: Record<string, string>;
              };
            };
            weight?: number;
          }>;
        };
      };
      rescheduling?: {
        minDwell?: string;
        moveCost?: number;
        when?: "OnEdit" | "WhenBetter";
      };
      scores?: Array<{
        bundles?: {
          labelSelector?: {
            matchExpressions?: Array<{
              key: string;
              operator: string;
              values?: Array<string>;
            }>;
            matchLabels?: Record<string, string>;
          };
          names?: Array<string>;
          within?: "cluster" | "region" | "zone" | "provider";
        };
        clusterAffinity?: {
          clusterNames?: Array<string>;
          exclude?: Array<string>;
          fieldSelector?: {
            matchExpressions: Array<{
              key: string;
              operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
              values?: Array<string>;
            }>;
          };
          labelSelector?: {
            matchExpressions?: Array<{
              key: string;
              operator: string;
              values?: Array<string>;
            }>;
            matchLabels?: Record<string, string>;
          };
        };
        full?: number | string;
        measure?: string;
        name: "Balance" | "Steady" | "ResourceAvailable" | "Property" | "ClusterScore" | "Affinity" | "AntiAffinity" | "ClusterAffinity";
        property?: {
          from: number | string;
          name: string;
          to: number | string;
        };
        resource?: string;
        weight?: number;
      }>;
      spreadConstraints?: Array<{
        maxGroups?: number;
        maxSkew?: number;
        minGroups?: number;
        spreadByField?: "cluster" | "region" | "zone" | "provider";
        spreadByLabel?: string;
        spreadByProperty?: string;
        whenUnsatisfiable?: "DoNotSchedule" | "ScheduleAnyway";
      }>;
      workloadAffinity?: {
        affinity?: {
          groupByLabelKey: string;
        };
        antiAffinity?: {
          groupByLabelKey: string;
        };
      };
    };
    placementRef?: {
      name: string;
    };
    prune?: "Remove" | "Keep";
    ref: {
      branch?: string;
      chart?: string;
      commit?: string;
      digest?: string;
      tag?: string;
      version?: string;
    };
    repository: string;
    serviceAccountName?: string;
    suspend?: boolean;
    syncRequest?: string;
    targetNamespace?: string;
    variants?: Array<{
      exclude?: boolean;
      helm?: {
        values?: Record<string, unknown>;
        valuesFiles?: Array<string>;
        valuesFrom?: Array<{
          key?: string;
          kind: "ConfigMap" | "Secret";
          name: string;
          optional?: boolean;
        }>;
      };
      name: string;
      patches?: Array<Record<string, unknown>>;
      paths?: Array<string>;
      targetCluster: {
        celSelector?: string;
        clusterNames?: Array<string>;
        clusterSets?: Array<string>;
        exclude?: Array<string>;
        fieldSelector?: {
          matchExpressions: Array<{
            key: string;
            operator: "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt";
            values?: Array<string>;
          }>;
        };
        labelSelector?: {
          matchExpressions?: Array<{
            key: string;
            operator: string;
            values?: Array<string>;
          }>;
          matchLabels?: Record<string, string>;
        };
      };
    }>;
  };
  status?: {
    attemptedCommit?: string;
    author?: string;
    builds?: Array<{
      chart?: string;
      path: string;
      type: "Plain" | "Kustomize" | "Helm";
    }>;
    clusters?: {
      desired?: number;
      ready?: number;
      summary?: string;
    };
    commit?: string;
    commitStatus?: {
      commit?: string;
      problem?: string;
      problemSince?: string;
      state?: "Pending" | "Success" | "Failure";
      time?: string;
    };
    conditions?: Array<{
      lastTransitionTime: string;
      message: string;
      observedGeneration?: number;
      reason: string;
      status: "True" | "False" | "Unknown";
      type: string;
    }>;
    digest?: string;
    drift?: Array<{
      deleted?: boolean;
      fields?: Array<string>;
      kind: string;
      managers?: Array<string>;
      message?: string;
      name: string;
      namespace?: string;
      since: string;
    }>;
    errors?: Array<{
      file?: string;
      line?: number;
      message: string;
    }>;
    inventory?: Array<{
      apiVersion: string;
      drift?: string;
      fields?: string;
      hash?: string;
      kept?: string;
      kind: string;
      name: string;
      namespace?: string;
      uid?: string;
    }>;
    message?: string;
    objects?: {
      applied?: number;
      drifted?: number;
      kept?: number;
      omitted?: number;
      total?: number;
    };
    observedGeneration?: number;
    seenCommit?: string;
    settings?: string;
    shortCommit?: string;
    syncRequest?: string;
    valuesDigest?: string;
    verified?: {
      commit: string;
      signer: string;
    };
    waitsFor?: string;
  };
}
