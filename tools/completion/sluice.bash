# Completion of sluice for bash, written by scripts/write_cli_docs.py.
_sluice() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options
  case $before in
    --accumulation-reduction)
      options="sum mean running_mean"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --accumulator-dtype)
      options="f32 f16 bf16"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --arch)
      options="gpt2 llama"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --decimal)
      options=". ,"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --header)
      options="yes no"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --io-mode)
      options="compute io io_overlapped"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --io-queues)
      options="1 3"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --load-strict)
      options="yes no"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --log-level)
      options="error info debug"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --loss)
      options="mse cross_entropy"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --lr-anneal)
      options="cosine linear"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --lr-schedule)
      options="constant linear cosine restarts step milestones one_cycle inverse_sqrt plateau"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --missing)
      options="refuse mean drop-row"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --optimizer)
      options="sgd momentum nesterov adam adam-f16 adamw adamax lamb rmsprop"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --plateau-mode)
      options="min max"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --plateau-threshold-mode)
      options="relative absolute"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --replica-reduction)
      options="sum mean"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --save-copy)
      options="host none"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --save-every)
      options="N 15m"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --schedule)
      options="grouped interleaved sequential auto"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --strategy)
      options="resident phased sharded pipelined"
      COMPREPLY=($(compgen -W "$options" -- "$word"))
      return ;;
    --check|--dataset|--machine|--measure|--problem|--python|--save|--save-best|--to|\
    --torch-save|--torch-weights|--weights)
      COMPREPLY=($(compgen -f -- "$word"))
      return ;;
    --checkpoint|--data|--log-dir|--profile-dir|--resume)
      COMPREPLY=($(compgen -d -- "$word"))
      return ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    options="train eval predict generate plan bench inspect doctor --list --version --help
      --help-all"
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
    train) options="--layers --width --arch --blocks --heads --kv-heads --context --vocab
      --dropout --dataset --loss --input --target --header --separator --decimal --missing
      --tokenizer --validation --standardize --data --weights --torch-weights --load-strict
      --load-names --fresh-optimizer --synthetic --micro-batch --accumulate --replicas
      --optimizer --beta1 --beta2 --weight-decay --clip-norm --freeze --accumulation-reduction
      --replica-reduction --accumulator-dtype --test-batch --test-iterations --lr --lr-schedule
      --warmup-steps --min-lr --lr-period --lr-multiplier --lr-factor --lr-milestones
      --lr-pct-start --lr-div-factor --lr-final-div-factor --lr-anneal --lr-three-phase
      --plateau-mode --plateau-patience --plateau-threshold --plateau-threshold-mode
      --plateau-cooldown --plateau-epsilon --ema-decay --device-iterations --output-mode
      --epochs --steps --save --checkpoint --save-every --resume --keep --save-copy --override
      --validate-every --patience --save-best --metric --check-replicas --torch-save --log-dir
      --log-histograms --seed --watch-gradients --watch-values --watch-every --prefetch --memory
      --offload --remote --offload-threshold --remote-memory --remote-bandwidth --remote-direct
      --verify-remote --strategy --threads --stages --schedule --group --devices --device-ids
      --map --io-mode --io-queues --shard-threshold --recompute --recompute-blocks --machine
      --disable --verify --json --quiet --log-level --digest --profile --profile-dir
      --single-process --help --help-all" ;;
    eval) options="--layers --width --arch --blocks --heads --kv-heads --context --vocab
      --dropout --dataset --loss --input --target --header --separator --decimal --missing
      --tokenizer --validation --all --data --weights --torch-weights --load-strict --load-names
      --fresh-optimizer --synthetic --micro-batch --accumulate --replicas --optimizer --beta1
      --beta2 --weight-decay --clip-norm --freeze --accumulation-reduction --replica-reduction
      --accumulator-dtype --test-batch --test-iterations --memory --offload --remote
      --offload-threshold --remote-memory --remote-bandwidth --remote-direct --verify-remote
      --strategy --threads --stages --schedule --group --devices --device-ids --map --io-mode
      --io-queues --shard-threshold --recompute --recompute-blocks --disable --verify --json
      --quiet --log-level --digest --profile --profile-dir --single-process --help --help-all"
      ;;
    predict) options="--layers --width --arch --blocks --heads --kv-heads --context --vocab
      --dataset --loss --input --target --header --separator --decimal --missing --weights
      --torch-weights --to --replicas --test-batch --test-iterations --memory --offload --remote
      --offload-threshold --remote-memory --remote-bandwidth --remote-direct --verify-remote
      --strategy --threads --stages --schedule --group --devices --device-ids --map --io-mode
      --io-queues --disable --verify --json --quiet --log-level --profile --profile-dir
      --single-process --help --help-all" ;;
    generate) options="--weights --tokenizer --prompt --tokens --temperature --top-k --top-p
      --seed --memory --threads --json --help --help-all" ;;
    plan) options="--layers --width --arch --blocks --heads --kv-heads --context --vocab
      --dropout --dataset --loss --input --target --header --separator --decimal --missing
      --tokenizer --validation --micro-batch --accumulate --replicas --optimizer --beta1 --beta2
      --weight-decay --clip-norm --freeze --accumulation-reduction --replica-reduction
      --accumulator-dtype --test-batch --test-iterations --lr --lr-schedule --ema-decay
      --device-iterations --output-mode --checkpoint --save-copy --watch-gradients
      --watch-values --watch-every --prefetch --memory --offload --remote --offload-threshold
      --remote-memory --remote-bandwidth --remote-direct --verify-remote --strategy --threads
      --stages --schedule --group --devices --device-ids --map --io-mode --io-queues
      --shard-threshold --recompute --recompute-blocks --machine --disable --verify
      --print-after --profile --profile-dir --json --full --passes --fusions --memory-map
      --transfers --schedule-table --dot --sweep --sort --problem --capacity --check --nodes
      --single-process --help --help-all" ;;
    bench) options="--layers --width --arch --blocks --heads --kv-heads --context --vocab
      --dropout --micro-batch --accumulate --replicas --optimizer --beta1 --beta2 --weight-decay
      --clip-norm --freeze --accumulation-reduction --replica-reduction --accumulator-dtype
      --test-batch --test-iterations --lr --lr-schedule --ema-decay --device-iterations --steps
      --synthetic --memory --offload --remote --offload-threshold --remote-memory
      --remote-bandwidth --remote-direct --verify-remote --strategy --threads --stages
      --schedule --group --devices --device-ids --map --io-mode --io-queues --shard-threshold
      --recompute --recompute-blocks --disable --verify --profile --profile-dir --json --only
      --rounds --dataset --epochs --elements --repeat --python --single-process --help
      --help-all" ;;
    inspect) options="--single-process --help --help-all" ;;
    doctor) options="--data --measure --single-process --help --help-all" ;;
    *) return ;;
  esac
  case ${COMP_WORDS[1]}:$word in
    inspect:[!-]*|inspect:) COMPREPLY=($(compgen -f -- "$word")) ;;
    *:-*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *)
      options="mnist mnist-rts mnist-phased mnist-cnn mlp mlp-skip resnet8 resnet18 gpt bert
        vit"
      COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
  esac
}
complete -F _sluice sluice
