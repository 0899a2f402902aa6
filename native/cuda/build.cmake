# The CUDA backend: adds to `objects`, sets `cuda_libraries`. Included when EDGEWISE_CUDA is ON or emulated.
file(GLOB cuda_host CONFIGURE_DEPENDS cuda/*.cc)
file(GLOB cuda_kernels RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS cuda/*.cu ops/*/cuda.cu ops/*/cuda_*.cu)
set_source_files_properties(addon/addon.cc PROPERTIES COMPILE_DEFINITIONS EDGEWISE_CUDA)

if(EDGEWISE_CUDA STREQUAL "emulated")
  file(GLOB emulator CONFIGURE_DEPENDS cuda/emulator/*.cc)
  set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX)
  add_library(edgewise_cuda_kernels OBJECT ${cuda_kernels})
  target_compile_options(edgewise_cuda_kernels PRIVATE -x c++ -O2 -ffp-contract=off -Wno-unknown-pragmas -Wno-unused-function)
  target_link_libraries(edgewise_cuda_kernels PRIVATE edgewise_options)
  set_target_properties(edgewise_cuda_kernels PROPERTIES UNITY_BUILD OFF)
  target_include_directories(edgewise_cuda_kernels SYSTEM PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulator)
  set(cudart_headers ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulator)
  list(APPEND objects $<TARGET_OBJECTS:edgewise_cuda_kernels>)
else()
  # nvcc is called as it is: CMake's own CUDA language does not know C++20 for every pair of CMake and nvcc.
  find_program(nvcc nvcc REQUIRED)
  execute_process(COMMAND ${nvcc} --dryrun -c -x cu /dev/null OUTPUT_VARIABLE plan ERROR_VARIABLE plan)
  string(REGEX MATCH "TOP=([^\n]+)" top "${plan}")
  get_filename_component(toolkit "${CMAKE_MATCH_1}" REALPATH)
  find_path(cudart_headers cuda_runtime.h REQUIRED HINTS ${toolkit}/include ${toolkit}/targets/x86_64-linux/include)
  find_library(cudart cudart_static REQUIRED HINTS ${toolkit}/lib64 ${toolkit}/targets/x86_64-linux/lib)
  set(cuda_libraries ${cudart} ${CMAKE_DL_LIBS} rt)

  # Hopper only: the kernels use its instructions, and nothing else is tested.
  set(nvcc_options -gencode=arch=compute_90a,code=sm_90a -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr
    -Xcompiler=-fPIC,-fvisibility=hidden,-Wall -I${CMAKE_CURRENT_SOURCE_DIR})
  foreach(kernel ${cuda_kernels})
    string(REPLACE "/" "." name ${kernel})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/kernels/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${kernel} ${CMAKE_CURRENT_LIST_FILE} DEPFILE ${object}.d
      COMMAND ${nvcc} ${nvcc_options} -MD -MT ${object} -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${kernel} -o ${object}
      COMMENT "nvcc ${kernel}" VERBATIM)
    list(APPEND kernel_objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  add_custom_target(edgewise_cuda_kernels DEPENDS ${kernel_objects})
  list(APPEND objects ${kernel_objects})
endif()

add_library(edgewise_cuda_host OBJECT ${cuda_host} ${emulator})
set_target_properties(edgewise_cuda_host PROPERTIES UNITY_BUILD OFF)
target_link_libraries(edgewise_cuda_host PRIVATE edgewise_options)
target_compile_options(edgewise_cuda_host PRIVATE -O2)
target_include_directories(edgewise_cuda_host SYSTEM PRIVATE ${cudart_headers})
list(APPEND objects $<TARGET_OBJECTS:edgewise_cuda_host>)
