// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/classify.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

struct Case {
  std::string name;
  std::string library;  // empty: compute
  Collective collective = Collective::kNone;
};

TEST(Classify, KernelNames) {
  const CommunicationRules rules;
  for (const Case& c : std::vector<Case>{
           // NCCL to 2.18 and from 2.19, and its symmetric kernels.
           {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "NCCL", Collective::kAllReduce},
           {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
            "NCCL",
            Collective::kSendRecv},
           {"ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)",
            "NCCL",
            Collective::kBroadcast},
           {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "NCCL",
            Collective::kAllReduce},
           {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "NCCL",
            Collective::kReduceScatter},
           {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "NCCL",
            Collective::kAllGather},
           {"ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "NCCL", Collective::kReduce},
           {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            "NCCL",
            Collective::kSendRecv},
           {"ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(x)", "NCCL", Collective::kAllReduce},
           // RCCL: mostly one name for all.
           {"ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)", "NCCL"},
           {"ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "NCCL"},
           {"void rcclGenericKernel<1, false>(rcclKernelArgs)", "RCCL"},
           // Others.
           {"oneccl_reduce_base<float>", "oneCCL", Collective::kReduce},
           {"hcom_allReduce__123_0_1", "HCCL", Collective::kAllReduce},
           {"hccl_broadcast", "HCCL", Collective::kBroadcast},
           {"void mscclKernel_Sum_half<false>(x)", "MSCCL"},
           {"nvshmemi_transfer_rma_put", "NVSHMEM"},
           {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "custom all-reduce",
            Collective::kAllReduce},
           {"void vllm::cross_device_reduce_2stage<half, 2>(vllm::RankData*)",
            "custom all-reduce",
            Collective::kAllReduce},
           {"void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, "
            "16>(c10::BFloat16*"
            ", unsigned long, unsigned int**, unsigned long, unsigned long)",
            "symmetric memory",
            Collective::kAllReduce},
           {"void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16>(float**)",
            "symmetric memory",
            Collective::kAllReduce},
           {"one_shot_all_reduce_kernel", "symmetric memory", Collective::kAllReduce},
           {"multimem_one_shot_all_reduce_kernel", "symmetric memory", Collective::kAllReduce},
           {"void deep_ep::internode::dispatch<8>(int4*)", "DeepEP", Collective::kAllToAll},
           {"void dpsk::ep::internode::combine<true>(x)", "DeepEP", Collective::kAllToAll},
           {"void deep_ep::intranode::notify_dispatch<8>(int*)", "DeepEP", Collective::kAllToAll},
           {"NCCLKERNEL_ALLREDUCE", "NCCL", Collective::kAllReduce},
           // Compute, though a word may look like it.
           {"void at::native::reduce_kernel<512, 1, float>(x)", ""},
           {"void at::native::vectorized_gather_kernel<16, long>(x)", ""},
           {"ampere_sgemm_128x64_tn", ""},
           {"Memcpy DtoD (Device -> Device)", ""},
           {"void dispatch_kernel(int)", ""},
           {"", ""},
       }) {
    SCOPED_TRACE(c.name);
    const KernelClass found = rules.classify(c.name);
    EXPECT_EQ(found.communication, !c.library.empty());
    EXPECT_EQ(found.library, c.library);
    EXPECT_EQ(found.collective, c.collective);
    EXPECT_EQ(found.rule.empty(), c.library.empty());
  }
}

TEST(Classify, CollectivesByName) {
  for (const auto& [name, collective] : std::vector<std::pair<std::string, Collective>>{
           {"allreduce", Collective::kAllReduce},
           {"all_reduce", Collective::kAllReduce},
           {"allreduce_coalesced", Collective::kAllReduce},
           {"_allgather_base", Collective::kAllGather},
           {"all_gather_into_tensor_coalesced", Collective::kAllGather},
           {"_reduce_scatter_base", Collective::kReduceScatter},
           {"reduce_scatter_tensor_coalesced", Collective::kReduceScatter},
           {"all_to_all", Collective::kAllToAll},
           {"all_to_allv", Collective::kAllToAll},
           {"broadcast", Collective::kBroadcast},
           {"barrier", Collective::kBarrier},
           {"reduce", Collective::kReduce},
           {"send", Collective::kSend},
           {"recv", Collective::kRecv},
           {"nccl:all_reduce", Collective::kAllReduce},
           {"c10d::allreduce_", Collective::kAllReduce},
           {"hcom_allReduce_", Collective::kAllReduce},
           {"AllReduce-op32_1", Collective::kAllReduce},
           {"wait", Collective::kNone},
           {"", Collective::kNone},
       }) {
    EXPECT_EQ(collective_of_name(name), collective) << name;
  }
}

TEST(Classify, HostRows) {
  for (const char* name : {"gloo:all_reduce",
                           "nccl:broadcast",
                           "mpi:send",
                           "ucc:x",
                           "hccl:x",
                           "xccl:all_gather",
                           "NCCL:all_reduce"}) {
    EXPECT_TRUE(CommunicationRules::is_host_communication(name)) << name;
  }
  // A c10d operator is the same call as the backend's row below it.
  for (const char* name : {"c10d::allreduce_", "aten::add", "nccl", "", "xnccl:all_reduce"}) {
    EXPECT_FALSE(CommunicationRules::is_host_communication(name)) << name;
  }
}

TEST(Classify, BytesOfElementTypes) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::uint32_t>>{
           {"Float", 4U},
           {"Half", 2U},
           {"BFloat16", 2U},
           {"Byte", 1U},
           {"Char", 1U},
           {"Int", 4U},
           {"Long", 8U},
           {"Double", 8U},
           {"Bool", 1U},
           {"Float8_e4m3fn", 1U},
           {"Float8_e5m2", 1U},
           {"Short", 2U},
           {"ncclFloat32", 4U},
           {"ncclBfloat16", 2U},
           {"c10::BFloat16", 2U},
           {"torch.float16", 2U},
           {"ComplexFloat", 8U},
           {"unknown", 0U},
           {"", 0U},
           {std::string(1000, 'x'), 0U},
       }) {
    EXPECT_EQ(element_bytes_of(name), bytes) << name;
  }
}

TEST(Classify, UsersExpressionsComeFirst) {
  CommunicationRules rules;
  rules.add_expression("^my_(ring|tree)_kernel");
  rules.add_expression("ncclDevKernel_Generic");
  const KernelClass ring = rules.classify("My_Ring_Kernel_allreduce<float>(x)");
  EXPECT_TRUE(ring.communication);
  EXPECT_EQ(ring.library, "given by the user");
  EXPECT_EQ(ring.rule, "^my_(ring|tree)_kernel");
  EXPECT_EQ(ring.collective, Collective::kAllReduce);
  EXPECT_FALSE(rules.classify("not_my_ring_kernel").communication);
  EXPECT_EQ(rules.classify("ncclDevKernel_Generic_1(x)").library, "given by the user");
  EXPECT_EQ(rules.classify("ncclDevKernel_AllReduce(x)").library, "NCCL");
  // Copies are of their own.
  CommunicationRules copy = rules;
  copy.add_expression("gemm");
  EXPECT_TRUE(copy.classify("sgemm").communication);
  EXPECT_FALSE(rules.classify("sgemm").communication);
}

TEST(Classify, AnExpressionThatIsNoneIsNamed) {
  CommunicationRules rules;
  try {
    rules.add_expression("my_(kernel");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("my_(kernel"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(rules.classify("my_(kernel").communication) << "nothing of it stays";
}

TEST(Classify, ALongNameExhaustsNeitherStackNorPatience) {
  CommunicationRules rules;
  rules.add_expression("^(a|b)*c");
  rules.add_expression("^((a*)*)*d");
  EXPECT_FALSE(rules.classify(std::string(1'000'000, 'a')).communication);
  std::string ends_with_d(4001, 'a');
  ends_with_d.back() = 'd';
  EXPECT_TRUE(rules.classify(ends_with_d).communication);
}

TEST(Classify, FilesOfRules) {
  CommunicationRules rules;
  rules.add_file("# ours\n\n  \nmy_ring  \r\nmy_tree", "rules.txt");
  EXPECT_TRUE(rules.classify("my_ring_kernel").communication);
  EXPECT_TRUE(rules.classify("my_tree_kernel").communication);
  EXPECT_FALSE(rules.classify("gemm").communication);
  EXPECT_FALSE(rules.classify("# ours").communication);
  try {
    rules.add_file("fine\n# comment\nbad[", "rules.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kParse);
    for (const char* part : {"rules.txt:3", "bad["}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Classify, WhatIsLookedForIsSaid) {
  const std::string text = CommunicationRules::looked_for();
  for (const char* part : {"nccl", "multimem_all_reduce", "gloo:"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(Classify, MetadataOverrulesTheName) {
  const Trace trace =
      read_trace_text(stretto::testing::KinetoText()
                          .kernel("my_kernel", 0, 5, 7, 1)
                          .kernel("my_kernel",
                                  10,
                                  5,
                                  20,
                                  2,
                                  R"(, "Collective name": "_allgather_base", "In msg nelems": 10,
                     "Out msg nelems": 40, "Group size": 4, "dtype": "BFloat16",
                     "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 9)")
                          .kernel("my_kernel", 20, 5, 7, 3)
                          .kernel("gemm", 30, 5, 7, 4)
                          .text(),
                      "t.json");
  // Only the row that has them: others of that name are counted apart, before it and behind it.
  ASSERT_EQ(trace.files[0].kernels.size(), 3U);
  EXPECT_FALSE(trace.files[0].kernels[0].classified.communication);
  EXPECT_EQ(trace.files[0].kernels[0].count, 2U);
  EXPECT_TRUE(trace.files[0].kernels[1].classified.communication);
  EXPECT_EQ(trace.files[0].kernels[1].count, 1U);
  EXPECT_EQ(trace.files[0].kernels[1].classified.rule, "_allgather_base");
  EXPECT_EQ(trace.files[0].kernels[1].name, trace.files[0].kernels[0].name);
  ASSERT_EQ(trace.timeline.calls.size(), 1U);
  const CollectiveCall& call = trace.timeline.calls[0];
  EXPECT_EQ(call.in_elements, 10);
  EXPECT_EQ(call.out_elements, 40);
  EXPECT_EQ(call.group_size, 4U);
  EXPECT_EQ(call.element_bytes, 2U);
  EXPECT_EQ(call.sequence, 9);
  EXPECT_EQ(trace.timeline.names.at(call.group), "3");
  EXPECT_EQ(trace.timeline.names.at(call.members), "[0, 1, 2, 3]");
  std::vector<const Record*> communication;
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kCommunication) {
      communication.push_back(&record);
    }
  }
  ASSERT_EQ(communication.size(), 1U);
  EXPECT_EQ(communication[0]->collective, Collective::kAllGather);
  EXPECT_EQ(communication[0]->bytes, 80);
  EXPECT_EQ(communication[0]->call, 0U);
}

TEST(Classify, AnEmptyExpressionIsRefused) {
  CommunicationRules rules;
  EXPECT_THROW(rules.add_expression(""), Error);
}

}  // namespace
}  // namespace stretto
